// The backends by name: the only place that knows them. Main thread.
#pragma once

#include <memory>

#include "cli/options.h"
#include "tensor/backend.h"

namespace mantou::cli {

// Whether the options ask for mlx; kInvalidArgument when they contradict each other.
bool wants_mlx(const ModelOptions& options);

// kUnsupported with what to do when this machine has not got the backend, or a broken one.
std::unique_ptr<Backend> make_backend(const ModelOptions& options, int threads);

}  // namespace mantou::cli
