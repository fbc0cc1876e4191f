// Attention over what a codec stored, with the operations and the order of mlx-lm
// and, with sinks over quantized planes, mlx-optiq. Pure functions.
#pragma once

#include "backends/mlx/kv_codec.h"

namespace mantou::on_mlx {

// q [B, heads, L, head_dim] over planes of S columns -> the same shape. Where neither
// mlx-lm nor mlx-optiq has a quantized form (soft caps, keys widened always) planes are decoded
// first.
array attention(const array& q, const Planes& planes, const KvCodec& codec, const Mask& mask,
                const AttentionSpec& spec);

}  // namespace mantou::on_mlx
