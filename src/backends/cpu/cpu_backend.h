// The native CPU backend: packed weights in a huge-page arena, kernels chosen at run time, a
// fork-join pool in which the engine thread takes part. See docs/determinism.md for what it
// promises.
#pragma once

#include <memory>

#include "tensor/backend.h"

namespace mantou::cpu {

struct CpuOptions {
  int threads = 0;           // 0: one a core this process may use
  bool compute_f32 = false;  // never quantize activations; weights are decoded to f32 (the oracle)
};

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);

}  // namespace mantou::cpu
