// How keys and values are stored, apart from rows and scheduling: a codec turns new ones
// [B, heads, N, head_dim] into the planes that rows keep. Groups run along head_dim, so slicing,
// padding and moving columns never changes encoded bytes. Stateless.
#pragma once

#include "backends/mlx/kv_tensor_rows.h"

namespace mantou::on_mlx {

// bits 0: as they are, two planes; else MLX's affine quantization, three planes for each.
struct KvCodec {
  int bits = 0;
  int group = 0;

  bool operator==(const KvCodec&) const = default;
  bool plain() const { return bits == 0; }
  Planes encode(const array& keys, const array& values) const;
};

}  // namespace mantou::on_mlx
