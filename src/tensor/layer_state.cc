#include "tensor/layer_state.h"

#include <fmt/format.h>

namespace mantou {
namespace {

const char* type_name(KvType type) {
  switch (type) {
    case KvType::kF16:
      return "f16";
    case KvType::kBF16:
      return "bf16";
    case KvType::kF32:
      return "f32";
  }
  return "unknown";
}

}  // namespace

std::string StateSpec::signature() const {
  const std::string reach = window > 0 ? fmt::format("sliding:{}", window) : "full";
  return fmt::format("kv:{}:{}:{}x{}", reach, type_name(type), kv_heads, head_dim);
}

}  // namespace mantou
