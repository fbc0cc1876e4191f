#include "tensor/layer_state.h"

#include <fmt/format.h>

namespace mantou {

std::string StateSpec::signature() const {
  const std::string reach = window > 0 ? fmt::format("sliding:{}", window) : "full";
  return fmt::format("kv:{}:{}:{}x{}", reach, kKvTypeNames[size_t(type)], kv_heads, head_dim);
}

}  // namespace mantou
