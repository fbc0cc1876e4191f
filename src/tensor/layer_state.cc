#include "tensor/layer_state.h"

#include <fmt/format.h>

namespace mantou {

std::string StateSpec::signature() const {
  const std::string reach = window > 0 ? fmt::format("sliding:{}", window) : "full";
  std::string text =
      fmt::format("kv:{}:{}:{}x{}", reach, kKvTypeNames[size_t(type)], kv_heads, head_dim);
  if (quant.bits > 0) text += fmt::format(":q{}/{}", quant.bits, quant.group);
  if (quant.bits > 0 && quant.start > 0) text += fmt::format("@{}", quant.start);
  return text;
}

}  // namespace mantou
