#include "backends/cpu/kv_block.h"

#include "base/error.h"

namespace mantou::cpu {

KvBlockLayout kv_block_layout(const StateSpec& spec) {
  if (spec.head_dim < 1 || spec.head_dim > kMaxHeadDim) {
    fail_param(ErrorCode::kUnsupported, "head_dim",
               "attention heads of {} dimensions are not supported; 1 to {} are", spec.head_dim,
               kMaxHeadDim);
  }
  if (spec.kv_heads < 1 || spec.window < 0) {
    fail_param(ErrorCode::kInvalidArgument, "kv_heads",
               "a KV state needs at least one head and no negative window, not {} heads, window {}",
               spec.kv_heads, spec.window);
  }
  const size_t element = spec.type == KvType::kF32 ? 4 : 2;
  KvBlockLayout layout{.type = spec.type, .kv_heads = spec.kv_heads, .head_dim = spec.head_dim};
  layout.value_stride = (spec.head_dim + 15) / 16 * 16;
  layout.value_offset = kBlockTokens * element * spec.head_dim;
  layout.head_bytes = layout.value_offset + kBlockTokens * element * layout.value_stride;
  layout.block_bytes = layout.head_bytes * spec.kv_heads;
  return layout;
}

KvBlockLayout kv_quantized_layout(const StateSpec& spec) {
  KvBlockLayout layout = kv_block_layout(spec);
  const KvQuant& quant = spec.quant;
  if ((quant.bits != 4 && quant.bits != 8) || quant.group < 32 || quant.group % 32 != 0 ||
      spec.head_dim % quant.group != 0) {
    fail_param(ErrorCode::kUnsupported, "kv_group_size",
               "heads of {} dimensions have no groups of {} with {} bits for a quantized KV cache",
               spec.head_dim, quant.group, quant.bits);
  }
  layout.bits = quant.bits;
  layout.rotated = quant.bits == 8;
  layout.group = quant.group;
  layout.groups = spec.head_dim / quant.group;
  layout.value_offset = size_t(kBlockTokens) * spec.head_dim * quant.bits / 8;
  layout.scale_offset = 2 * layout.value_offset;
  layout.head_bytes = layout.scale_offset + size_t{4} * layout.groups * kBlockTokens * 2;
  layout.block_bytes = layout.head_bytes * spec.kv_heads;
  return layout;
}

}  // namespace mantou::cpu
