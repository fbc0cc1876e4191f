// The elementwise kernels, written once over Vector; included after one vector_*.h by the unit of
// each instruction set. Lanes are independent and the sum of rms_norm has 32 chains whatever the
// width, so that all widths give the same bits.
#pragma once

#include "backends/cpu/kernels/kernel_sets.h"

namespace mantou::cpu {
namespace {

using F = Vector::F;
constexpr int kWidth = Vector::kWidth;

// Calls op(i, count) for spans of the vector width, the last one shorter.
template <class Op>
inline void for_spans(int64_t n, const Op& op) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) op(i, kWidth);
  if (i < n) op(i, int(n - i));
}

inline F load_span(const float* p, int count) {
  if (count == kWidth) return Vector::load(p);
  float padded[kWidth] = {};
  for (int i = 0; i < count; ++i) padded[i] = p[i];
  return Vector::load(padded);
}

inline void store_span(float* p, F value, int count) {
  if (count == kWidth) return Vector::store(p, value);
  float padded[kWidth];
  Vector::store(padded, value);
  for (int i = 0; i < count; ++i) p[i] = padded[i];
}

// e^x within 1 ulp; subnormal results are rounded once more. Reduction to |r| ≤ ln 2 / 2 with ln 2
// in two parts, then the polynomial of Cephes' expf.
inline F exp_f32(F x) {
  const F clamped = Vector::min(Vector::max(x, Vector::set(-104.0f)), Vector::set(89.0f));
  const F magic = Vector::set(0x1.8p23f);  // adding it rounds to an integer
  const F n = Vector::sub(Vector::fma(clamped, Vector::set(0x1.715476p+0f), magic), magic);
  F r = Vector::fma(n, Vector::set(-0x1.63p-1f), clamped);
  r = Vector::fma(n, Vector::set(0x1.bd0106p-13f), r);
  F p = Vector::set(1.9875691500e-4f);
  p = Vector::fma(p, r, Vector::set(1.3981999507e-3f));
  p = Vector::fma(p, r, Vector::set(8.3334519073e-3f));
  p = Vector::fma(p, r, Vector::set(4.1665795894e-2f));
  p = Vector::fma(p, r, Vector::set(1.6666665459e-1f));
  p = Vector::fma(p, r, Vector::set(5.0000001201e-1f));
  p = Vector::add(Vector::fma(p, Vector::mul(r, r), r), Vector::set(1.0f));
  // 2^n in two factors, each a normal number: n reaches −150 and 128.
  const F half = Vector::sub(Vector::fma(n, Vector::set(0.5f), magic), magic);
  p = Vector::mul(Vector::mul(p, Vector::power_of_two(half)),
                  Vector::power_of_two(Vector::sub(n, half)));
  return Vector::select(Vector::is_nan(x), x, p);
}

// tanh within 2 ulp: Cephes' tanhf, a polynomial below 0.625 and 1 − 2 / (e^2x + 1) above.
inline F tanh_f32(F x) {
  const F magnitude = Vector::abs(x), one = Vector::set(1.0f), two = Vector::set(2.0f);
  const F e = exp_f32(Vector::add(magnitude, magnitude));
  const F large = Vector::sub(one, Vector::div(two, Vector::add(e, one)));
  const F z = Vector::mul(x, x);
  F p = Vector::set(-5.70498872745e-3f);
  p = Vector::fma(p, z, Vector::set(2.06390887954e-2f));
  p = Vector::fma(p, z, Vector::set(-5.37397155531e-2f));
  p = Vector::fma(p, z, Vector::set(1.33314422036e-1f));
  p = Vector::fma(p, z, Vector::set(-3.33332819422e-1f));
  const F small = Vector::fma(Vector::mul(p, z), x, x);
  const F value = Vector::select(Vector::less(magnitude, Vector::set(0.625f)), small,
                                 Vector::copy_sign(large, x));
  return Vector::select(Vector::is_nan(x), x, value);
}

// g / (1 + e^−z): g times the logistic function of z.
inline F gate(F g, F z) {
  const F e = exp_f32(Vector::sub(Vector::set(0.0f), z));
  return Vector::div(g, Vector::add(Vector::set(1.0f), e));
}

// A sum in 32 chains: chain l takes x[32·i + l] through add(sum, x), and the chains are added in
// halves. What is missing of the last 32 counts as `padding`.
template <class Add>
inline float sum_in_chains(const float* x, int n, float padding, const Add& add) {
  constexpr int kChains = 32, kVectors = kChains / kWidth;
  F sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = Vector::set(0.0f);
  const auto add_span = [&](const float* p) {
    for (int v = 0; v < kVectors; ++v) sums[v] = add(sums[v], Vector::load(p + v * kWidth));
  };
  int i = 0;
  for (; i + kChains <= n; i += kChains) add_span(x + i);
  if (i < n) {
    float padded[kChains];
    for (int l = 0; l < kChains; ++l) padded[l] = i + l < n ? x[i + l] : padding;
    add_span(padded);
  }
  float chains[kChains];
  for (int v = 0; v < kVectors; ++v) Vector::store(chains + v * kWidth, sums[v]);
  for (int step = kChains / 2; step > 0; step /= 2)
    for (int l = 0; l < step; ++l) chains[l] += chains[l + step];
  return chains[0];
}

inline float sum_of_squares(const float* x, int n) {
  return sum_in_chains(x, n, 0.0f, [](F sum, F v) { return Vector::fma(v, v, sum); });
}

void layer_norm_row(const float* x, const float* weight, const float* bias, float eps, int n,
                    float* out) {
  const float mean =
      sum_in_chains(x, n, 0.0f, [](F sum, F v) { return Vector::add(sum, v); }) / float(n);
  const F center = Vector::set(mean);
  const float squares = sum_in_chains(x, n, mean, [center](F sum, F v) {
    const F difference = Vector::sub(v, center);
    return Vector::fma(difference, difference, sum);
  });
  const F factor = Vector::set(1.0f / __builtin_sqrtf(squares / float(n) + eps));
  for_spans(n, [&](int64_t i, int count) {
    F value = Vector::mul(Vector::sub(load_span(x + i, count), center), factor);
    if (weight != nullptr) value = Vector::mul(value, load_span(weight + i, count));
    if (bias != nullptr) value = Vector::add(value, load_span(bias + i, count));
    store_span(out + i, value, count);
  });
}

void rms_norm_row(const float* x, const float* weight, float eps, bool plus_one, int n,
                  float* out) {
  const F factor = Vector::set(1.0f / __builtin_sqrtf(sum_of_squares(x, n) / float(n) + eps));
  const F offset = Vector::set(plus_one ? 1.0f : 0.0f);
  for_spans(n, [&](int64_t i, int count) {
    F value = Vector::mul(load_span(x + i, count), factor);
    if (weight != nullptr) {
      F w = load_span(weight + i, count);
      if (plus_one) w = Vector::add(w, offset);
      value = Vector::mul(value, w);
    }
    store_span(out + i, value, count);
  });
}

void silu_mul_row(const float* g, const float* up, int64_t n, float* out) {
  for_spans(n, [&](int64_t i, int count) {
    const F x = load_span(g + i, count);
    store_span(out + i, Vector::mul(gate(x, x), load_span(up + i, count)), count);
  });
}

void gelu_tanh_mul_row(const float* g, const float* up, int64_t n, float* out) {
  const F cubic = Vector::set(0.044715f), twice_root = Vector::set(1.5957691216057308f);
  for_spans(n, [&](int64_t i, int count) {
    const F x = load_span(g + i, count);
    const F inner = Vector::fma(Vector::mul(cubic, Vector::mul(x, x)), x, x);
    const F value = gate(x, Vector::mul(twice_root, inner));
    store_span(out + i, Vector::mul(value, load_span(up + i, count)), count);
  });
}

void swiglu_oai_row(const float* g, const float* up, int64_t n, float* out) {
  const F limit = Vector::set(7.0f), negative = Vector::set(-7.0f);
  for_spans(n, [&](int64_t i, int count) {
    const F x = Vector::min(load_span(g + i, count), limit);
    const F u = Vector::max(Vector::min(load_span(up + i, count), limit), negative);
    const F value = gate(x, Vector::mul(Vector::set(1.702f), x));
    store_span(out + i, Vector::mul(Vector::add(u, Vector::set(1.0f)), value), count);
  });
}

void add_rows(const float* a, const float* b, int64_t n, float* out) {
  for_spans(n, [&](int64_t i, int count) {
    store_span(out + i, Vector::add(load_span(a + i, count), load_span(b + i, count)), count);
  });
}

void multiply_rows(const float* a, const float* b, int64_t n, float* out) {
  for_spans(n, [&](int64_t i, int count) {
    store_span(out + i, Vector::mul(load_span(a + i, count), load_span(b + i, count)), count);
  });
}

void scale_row(const float* x, float factor, int64_t n, float* out) {
  const F f = Vector::set(factor);
  for_spans(n, [&](int64_t i, int count) {
    store_span(out + i, Vector::mul(load_span(x + i, count), f), count);
  });
}

void softcap_row(const float* x, float cap, int64_t n, float* out) {
  const F c = Vector::set(cap);
  for_spans(n, [&](int64_t i, int count) {
    const F value = tanh_f32(Vector::div(load_span(x + i, count), c));
    store_span(out + i, Vector::mul(c, value), count);
  });
}

void exp_row(const float* x, int64_t n, float* out) {
  for_spans(n, [&](int64_t i, int count) {
    store_span(out + i, exp_f32(load_span(x + i, count)), count);
  });
}

void tanh_row(const float* x, int64_t n, float* out) {
  for_spans(n, [&](int64_t i, int count) {
    store_span(out + i, tanh_f32(load_span(x + i, count)), count);
  });
}

void rope_heads(float* x, const float* cos, const float* sin, int heads, int head_dim,
                int rotated) {
  const int half = rotated / 2;
  for (int h = 0; h < heads; ++h, x += head_dim) {
    for_spans(half, [&](int64_t i, int count) {
      const F a = load_span(x + i, count), b = load_span(x + half + i, count);
      const F c = load_span(cos + i, count), s = load_span(sin + i, count);
      store_span(x + i, Vector::fmsub(a, c, Vector::mul(b, s)), count);
      store_span(x + half + i, Vector::fma(b, c, Vector::mul(a, s)), count);
    });
  }
}

ArgMax arg_max_row(const float* x, int64_t n) {
  if (n == 0) return {-1, 0.0f, false};
  F best = Vector::set(x[0]);
  Vector::Mask nan = Vector::is_nan(best);
  for_spans(n, [&](int64_t i, int count) {
    F value = load_span(x + i, count);
    if (count < kWidth) {  // lanes past the end must not win
      float padded[kWidth];
      for (int l = 0; l < kWidth; ++l) padded[l] = x[l < count ? i + l : i];
      value = Vector::load(padded);
    }
    nan = Vector::any_of(nan, Vector::is_nan(value));
    best = Vector::max(value, best);
  });
  if (Vector::bits(nan) != 0) return {0, x[0], true};
  float lanes[kWidth];
  Vector::store(lanes, best);
  for (int l = 1; l < kWidth; ++l)
    if (lanes[l] > lanes[0]) lanes[0] = lanes[l];
  const F largest = Vector::set(lanes[0]);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const unsigned hits = Vector::bits(Vector::equal(Vector::load(x + i), largest));
    if (hits != 0) {
      i += __builtin_ctz(hits);
      return {i, x[i], false};
    }
  }
  while (x[i] != lanes[0]) ++i;
  return {i, x[i], false};
}

void add_elementwise(KernelTable& table) {
  table.rms_norm = rms_norm_row;
  table.layer_norm = layer_norm_row;
  table.swiglu_oai = swiglu_oai_row;
  table.silu_mul = silu_mul_row;
  table.gelu_tanh_mul = gelu_tanh_mul_row;
  table.add = add_rows;
  table.multiply = multiply_rows;
  table.scale = scale_row;
  table.softcap = softcap_row;
  table.exp = exp_row;
  table.tanh = tanh_row;
  table.rope = rope_heads;
  table.arg_max = arg_max_row;
}

}  // namespace
}  // namespace mantou::cpu
