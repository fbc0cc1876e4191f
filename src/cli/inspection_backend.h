// A backend that takes weights and never computes: models load against it, so that their own checks
// of configuration, shapes, values and left-over tensors run without memory; they read every weight
// once.
#pragma once

#include <memory>

#include "tensor/backend.h"

namespace mantou::cli {

std::unique_ptr<Backend> make_inspection_backend();

}  // namespace mantou::cli
