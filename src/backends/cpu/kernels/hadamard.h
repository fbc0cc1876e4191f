// The orthonormal Hadamard rotation of attention heads, which spreads outliers over all dimensions
// before keys and values are quantized (QuaRot, arXiv:2404.00456). Scores keep their value when
// queries are rotated too; results over rotated values are rotated back by the same rotation, its
// own inverse. Plain C++, the same bits on every machine. Pure functions; any thread.
#pragma once

#include <cmath>

namespace mantou::cpu {

// Dimensions rotated together: the largest power of two that divides head_dim.
inline int rotation_size(int head_dim) { return head_dim & -head_dim; }

// x[i] = sum over j of (−1)^popcount(i & j) · x[j] / sqrt(n), in each run of n dimensions.
inline void rotate_head(float* x, int head_dim) {
  const int n = rotation_size(head_dim);
  const float factor = 1 / std::sqrt(float(n));
  for (float* run = x; run < x + head_dim; run += n) {
    for (int half = 1; half < n; half *= 2) {
      for (int i = 0; i < n; i += 2 * half) {
        for (int j = i; j < i + half; j++) {
          const float a = run[j], b = run[j + half];
          run[j] = a + b;
          run[j + half] = a - b;
        }
      }
    }
    for (int i = 0; i < n; i++) run[i] *= factor;
  }
}

}  // namespace mantou::cpu
