// Small kernels over rows of f32: norms, activations, rope, arg-max.
//
// `out` may be an input. Sums run in a fixed order, exp and tanh are within 2 ulp, and all
// instruction sets give the same bits. No allocation, any thread; a caller splits rows over threads
// itself.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/kernel_table.h"

namespace mantou::cpu {

// out[i] = (x[i] / sqrt(mean(x²) + eps)) · weight[i], or · (1 + weight[i]) with plus_one; no weight
// when it is nullptr.
inline void rms_norm(const KernelTable& t, const float* x, const float* weight, float eps,
                     bool plus_one, int n, float* out) {
  t.rms_norm(x, weight, eps, plus_one, n, out);
}

// out[i] = (x[i] − mean) / sqrt(var + eps) · weight[i] + bias[i]; weight and bias may be nullptr.
inline void layer_norm(const KernelTable& t, const float* x, const float* weight, const float* bias,
                       float eps, int n, float* out) {
  t.layer_norm(x, weight, bias, eps, n, out);
}

// out[i] = (clamp(up[i], −7, 7) + 1) · g · sigmoid(1.702 · g), g = min(gate[i], 7). NaN in, NaN out
// is not promised.
inline void swiglu_oai(const KernelTable& t, const float* gate, const float* up, int64_t n,
                       float* out) {
  t.swiglu_oai(gate, up, n, out);
}

// out[i] = silu(gate[i]) · up[i], silu(g) = g / (1 + exp(−g)).
inline void silu_mul(const KernelTable& t, const float* gate, const float* up, int64_t n,
                     float* out) {
  t.silu_mul(gate, up, n, out);
}

// out[i] = gelu(gate[i]) · up[i] with the tanh approximation, in its sigmoid form
// g / (1 + exp(−2 · sqrt(2/π) · (g + 0.044715 · g³))).
inline void gelu_tanh_mul(const KernelTable& t, const float* gate, const float* up, int64_t n,
                          float* out) {
  t.gelu_tanh_mul(gate, up, n, out);
}

// The same with the exact gelu, g / 2 · (1 + erf(g / sqrt 2)). Scalar on every CPU.
void gelu_erf_mul(const float* gate, const float* up, int64_t n, float* out);

inline void add(const KernelTable& t, const float* a, const float* b, int64_t n, float* out) {
  t.add(a, b, n, out);
}
inline void multiply(const KernelTable& t, const float* a, const float* b, int64_t n, float* out) {
  t.multiply(a, b, n, out);
}
inline void scale(const KernelTable& t, const float* x, float factor, int64_t n, float* out) {
  t.scale(x, factor, n, out);
}

// out[i] = cap · tanh(x[i] / cap).
inline void softcap(const KernelTable& t, const float* x, float cap, int64_t n, float* out) {
  t.softcap(x, cap, n, out);
}

// Rotary embedding of x[heads, head_dim] in place, half-rotated: with h = rotated / 2, for i < h
// (x[i], x[i + h]) becomes (x[i]·cos[i] − x[i+h]·sin[i], x[i+h]·cos[i] + x[i]·sin[i]); elements
// from `rotated` on stay. cos, sin: [h], of one position.
inline void rope(const KernelTable& t, float* x, const float* cos, const float* sin, int heads,
                 int head_dim, int rotated) {
  t.rope(x, cos, sin, heads, head_dim, rotated);
}

// The same with the pairs (x[2i], x[2i + 1]). Scalar on every CPU.
void rope_interleaved(float* x, const float* cos, const float* sin, int heads, int head_dim,
                      int rotated);

inline ArgMax arg_max(const KernelTable& t, const float* x, int64_t n) { return t.arg_max(x, n); }

}  // namespace mantou::cpu
