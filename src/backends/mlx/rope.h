// Rotary embeddings with mlx-lm's arithmetic: its classes build a table of frequencies in f32 on
// the device, operation by operation, and so do these.
#pragma once

#include "backends/mlx/mlx_arrays.h"

namespace mantou::on_mlx {

// How to call mx::fast::rope.
struct RopeCall {
  int dims = 0;
  bool interleaved = false;
  std::optional<float> base;  // or a table:
  std::optional<array> freqs;
  float scale = 1;        // of positions
  double multiplier = 1;  // of what is rotated, before it is
};

RopeCall make_rope(const Rope& rope);

// x [B, heads, L, head_dim] at `offset`: one for all rows, or i32 [B].
array apply_rope(const RopeCall& rope, const array& x, const std::variant<int, array>& offset);

}  // namespace mantou::on_mlx
