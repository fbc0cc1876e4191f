// The attention kernels for AVX-512 (F, BW, CD, DQ, VL).

#if defined(__x86_64__)

#ifndef __clang__
// g++ 12 takes the undefined vectors inside its own intrinsics for mistakes (its bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include "backends/cpu/kernels/attention_kernels.h"

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
  __m512 v;
};

// More rows work on a slab converted to f32.
constexpr int kDirectRows = 12;
// Rows of a product of 1, 2 or 4 vectors at most: 29 registers.
constexpr int kRowsOf1 = 12, kRowsOf2 = 12, kRowsOf4 = 6;

MANTOU_INLINE __m256i bits_at(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
MANTOU_INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
MANTOU_INLINE Vec load(const F16Cell* p) { return {_mm512_cvtph_ps(bits_at(p))}; }
MANTOU_INLINE Vec load(const BF16Cell* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits_at(p)), 16))};
}
MANTOU_INLINE Vec from_bytes(__m128i bytes) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))};
}
MANTOU_INLINE __m128i bytes_at(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
MANTOU_INLINE Vec load(const Q8Cell* p) { return from_bytes(bytes_at(p)); }
MANTOU_INLINE Vec load_low(const Q4Cell* p) {
  return from_bytes(_mm_and_si128(bytes_at(p), _mm_set1_epi8(15)));
}
MANTOU_INLINE Vec load_high(const Q4Cell* p) {
  return from_bytes(_mm_and_si128(_mm_srli_epi16(bytes_at(p), 4), _mm_set1_epi8(15)));
}
MANTOU_INLINE void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
MANTOU_INLINE void store(F16Cell* p, Vec a) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, kMode));
}
MANTOU_INLINE void store(BF16Cell* p, Vec a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i near = _mm512_add_epi32(bits, _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  const __m512i rounded = _mm512_srli_epi32(_mm512_mask_blend_epi32(nan, near, quiet), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(rounded));
}
MANTOU_INLINE Vec broadcast(float f) { return {_mm512_set1_ps(f)}; }
MANTOU_INLINE float first_lane(Vec a) { return _mm512_cvtss_f32(a.v); }
MANTOU_INLINE Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
MANTOU_INLINE Vec sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
MANTOU_INLINE Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
MANTOU_INLINE Vec quotient(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
MANTOU_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
MANTOU_INLINE Vec max_of(Vec a, Vec b) {  // b where one is NaN
  return {_mm512_max_ps(a.v, b.v)};
}
MANTOU_INLINE Vec min_of(Vec a, Vec b) {  // b where one is NaN
  return {_mm512_min_ps(a.v, b.v)};
}
MANTOU_INLINE Vec magnitude(Vec a) { return {_mm512_abs_ps(a.v)}; }
MANTOU_INLINE Vec pick_less(Vec a, Vec b, Vec x, Vec y) {  // a < b ? x : y
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
MANTOU_INLINE Vec round_even(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
MANTOU_INLINE Vec power_of_2(Vec n) {  // n an integer in −126 … 127
  const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
}
// Lanes i and i + 8, then + 4, + 2, + 1.
MANTOU_INLINE float horizontal_max(Vec a) {
  const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
MANTOU_INLINE float horizontal_sum(Vec a) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
MANTOU_INLINE void prefetch(const char* p) { _mm_prefetch(p, _MM_HINT_T1); }

#include "backends/cpu/kernels/attention_append.inc"
#include "backends/cpu/kernels/attention_product.inc"
#include "backends/cpu/kernels/attention_tile.inc"

}  // namespace

const AttentionKernels kAttentionAvx512 = kKernels;

}  // namespace mantou::cpu

#endif  // __x86_64__
