#include "backends/cpu/kernels/elementwise.h"

#include <cmath>

namespace mantou::cpu {

void gelu_erf_mul(const float* gate, const float* up, int64_t n, float* out) {
  constexpr float kRootHalf = 0.70710678118654752f;
  for (int64_t i = 0; i < n; ++i)
    out[i] = 0.5f * gate[i] * (1.0f + std::erf(gate[i] * kRootHalf)) * up[i];
}

void rope_interleaved(float* x, const float* cos, const float* sin, int heads, int head_dim,
                      int rotated) {
  for (int h = 0; h < heads; ++h, x += head_dim)
    for (int i = 0; i < rotated / 2; ++i) {
      const float a = x[2 * i], b = x[2 * i + 1];
      x[2 * i] = a * cos[i] - b * sin[i];
      x[2 * i + 1] = b * cos[i] + a * sin[i];
    }
}

}  // namespace mantou::cpu
