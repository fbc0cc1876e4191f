// A backend that takes weights and never computes: models load against it, so that their own checks
// of configuration, shapes and left-over tensors run in milliseconds and without memory.
#pragma once

#include <memory>

#include "tensor/backend.h"

namespace mantou::cli {

std::unique_ptr<Backend> make_inspection_backend();

}  // namespace mantou::cli
