// The mlx backend: MLX's own operations in the order in which mlx-lm calls them, so that results
// are its own bit for bit on the same libmlx (docs/determinism.md). One engine thread after load.
#pragma once

#include <memory>

#include "tensor/backend.h"

namespace mantou::on_mlx {

// MLX's default device; products with weights on `threads` threads. The version of the loaded
// libmlx must be the one this was built for (kUnsupported).
std::unique_ptr<Backend> make_mlx_backend(int threads);

}  // namespace mantou::on_mlx
