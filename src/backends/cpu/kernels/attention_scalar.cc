// The attention kernels in plain C++: the specification of what the other sets compute.

#include <bit>

#include "backends/cpu/kernels/attention_kernels.h"
#include "base/half.h"

namespace mantou::cpu {
namespace {

#define MANTOU_INLINE static inline __attribute__((always_inline))

struct F16Cell {
  uint16_t bits;
};
struct BF16Cell {
  uint16_t bits;
};
struct Q8Cell {
  uint8_t code;
};
struct Q4Cell {
  uint8_t codes;  // of lanes i and i + 16
};

struct Vec {
  float lane[kLanes];
};

// More rows work on a slab converted to f32.
constexpr int kDirectRows = 1;
// Rows of a product of 1, 2 or 4 vectors at most: calls of fmaf dominate, so blocking gains
// nothing.
constexpr int kRowsOf1 = 1, kRowsOf2 = 0, kRowsOf4 = 0;

template <class F>
MANTOU_INLINE Vec each(F f) {
  Vec result;
#pragma GCC unroll 1
  for (int i = 0; i < kLanes; i++) result.lane[i] = f(i);
  return result;
}

MANTOU_INLINE Vec load(const float* p) {
  return each([&](int i) { return p[i]; });
}
MANTOU_INLINE Vec load(const F16Cell* p) {
  return each([&](int i) { return f16_to_f32(p[i].bits); });
}
MANTOU_INLINE Vec load(const BF16Cell* p) {
  return each([&](int i) { return bf16_to_f32(p[i].bits); });
}
MANTOU_INLINE Vec load(const Q8Cell* p) {
  return each([&](int i) { return float(p[i].code); });
}
MANTOU_INLINE Vec load_low(const Q4Cell* p) {
  return each([&](int i) { return float(p[i].codes & 15); });
}
MANTOU_INLINE Vec load_high(const Q4Cell* p) {
  return each([&](int i) { return float(p[i].codes >> 4); });
}
MANTOU_INLINE void store(float* p, Vec a) {
  for (int i = 0; i < kLanes; i++) p[i] = a.lane[i];
}
MANTOU_INLINE void store(F16Cell* p, Vec a) {
  for (int i = 0; i < kLanes; i++) p[i].bits = f32_to_f16(a.lane[i]);
}
MANTOU_INLINE void store(BF16Cell* p, Vec a) {
  for (int i = 0; i < kLanes; i++) p[i].bits = f32_to_bf16(a.lane[i]);
}
MANTOU_INLINE Vec broadcast(float f) {
  return each([&](int) { return f; });
}
MANTOU_INLINE float first_lane(Vec a) { return a.lane[0]; }
MANTOU_INLINE Vec add(Vec a, Vec b) {
  return each([&](int i) { return a.lane[i] + b.lane[i]; });
}
MANTOU_INLINE Vec sub(Vec a, Vec b) {
  return each([&](int i) { return a.lane[i] - b.lane[i]; });
}
MANTOU_INLINE Vec mul(Vec a, Vec b) {
  return each([&](int i) { return a.lane[i] * b.lane[i]; });
}
MANTOU_INLINE Vec quotient(Vec a, Vec b) {
  return each([&](int i) { return a.lane[i] / b.lane[i]; });
}
MANTOU_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return each([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
}
MANTOU_INLINE Vec max_of(Vec a, Vec b) {  // b where one is NaN
  return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
MANTOU_INLINE Vec min_of(Vec a, Vec b) {  // b where one is NaN
  return each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
MANTOU_INLINE Vec magnitude(Vec a) {
  return each([&](int i) { return __builtin_fabsf(a.lane[i]); });
}
MANTOU_INLINE Vec pick_less(Vec a, Vec b, Vec x, Vec y) {  // a < b ? x : y
  return each([&](int i) { return a.lane[i] < b.lane[i] ? x.lane[i] : y.lane[i]; });
}
constexpr float kShift = 0x1.8p23f;  // its last place is 1: adding it rounds to an integer
MANTOU_INLINE Vec round_even(Vec a) {
  return each([&](int i) { return (a.lane[i] + kShift) - kShift; });
}
MANTOU_INLINE Vec power_of_2(Vec n) {  // n an integer in −126 … 127
  return each([&](int i) {
    return std::bit_cast<float>((std::bit_cast<uint32_t>(n.lane[i] + kShift) + 127) << 23);
  });
}
// Lanes i and i + 8, then + 4, + 2, + 1.
MANTOU_INLINE float horizontal_max(Vec a) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; i++) {
      a.lane[i] = a.lane[i] > a.lane[i + half] ? a.lane[i] : a.lane[i + half];
    }
  }
  return a.lane[0];
}
MANTOU_INLINE float horizontal_sum(Vec a) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; i++) a.lane[i] += a.lane[i + half];
  }
  return a.lane[0];
}
MANTOU_INLINE void prefetch(const char*) {}

#include "backends/cpu/kernels/attention_append.inc"
#include "backends/cpu/kernels/attention_product.inc"
#include "backends/cpu/kernels/attention_tile.inc"

}  // namespace

const AttentionKernels kAttentionScalar = kKernels;

}  // namespace mantou::cpu
