// The mlx backend: MLX's own operations in the order in which mlx-lm calls them, so that results
// are its own bit for bit on the same libmlx (docs/determinism.md). One engine thread after load.
#pragma once

#include <memory>
#include <optional>

#include "tensor/backend.h"

namespace mantou::on_mlx {

struct MlxOptions {
  int threads = 1;  // of products with weights, on CPUs
  // Whether head_ahead works ahead; not set: where the device is not a CPU.
  std::optional<bool> ahead = {};
};

// On MLX's default device. The version of the loaded libmlx must be the one this was built for
// (kUnsupported).
std::unique_ptr<Backend> make_mlx_backend(const MlxOptions& options);

}  // namespace mantou::on_mlx
