#include "backends/cpu/kernels/elementwise.h"

#include <cmath>

namespace mantou::cpu {

void gelu_erf_mul(const float* gate, const float* up, int64_t n, float* out) {
  constexpr float kRootHalf = 0.70710678118654752f;
  for (int64_t i = 0; i < n; ++i)
    out[i] = 0.5f * gate[i] * (1.0f + std::erf(gate[i] * kRootHalf)) * up[i];
}

}  // namespace mantou::cpu
