// Stored weights as MLX arrays, in the types in which they are stored: nothing is rounded. While a
// model loads.
#pragma once

#include <span>

#include "backends/mlx/mlx_arrays.h"

namespace mantou::on_mlx {

// [rows, cols] (a vector: [cols]). Dense f32, f16, bf16 and MLX's quantizations stay as they are;
// GGUF blocks become f32.
std::shared_ptr<ArrayStorage> pack(const RawWeight& raw, WeightUse use);

// [experts, rows, cols] of matrices of one format; an expert in another format is an error that
// names its tensor.
std::shared_ptr<ArrayStorage> pack_experts(std::span<const RawWeight> experts);

}  // namespace mantou::on_mlx
