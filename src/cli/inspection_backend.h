// A backend that takes weights and never computes: models load against it, so that their own checks
// of configuration, shapes, values and left-over tensors run without memory; they read every weight
// once.
#pragma once

#include <memory>

#include "tensor/backend.h"

namespace mantou::cli {

// `own_kv_type`: keeps keys and values in the model's own type, as mlx does.
std::unique_ptr<Backend> make_inspection_backend(bool own_kv_type);

}  // namespace mantou::cli
