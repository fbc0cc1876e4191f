// The attention kernels for AVX2, FMA and F16C: vectors of 16 are pairs of registers.

#if defined(__x86_64__)

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
  __m256 a, b;
};

// More rows work on a slab converted to f32.
constexpr int kDirectRows = 12;
// Rows of a product of 1, 2 or 4 vectors at most: 15 registers.
constexpr int kRowsOf1 = 6, kRowsOf2 = 2, kRowsOf4 = 0;

MANTOU_INLINE __m256i shifted(const BF16Cell* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16);
}
MANTOU_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
MANTOU_INLINE Vec load(const F16Cell* p) {
  const __m128i* bits = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(bits)), _mm256_cvtph_ps(_mm_loadu_si128(bits + 1))};
}
MANTOU_INLINE Vec load(const BF16Cell* p) {
  return {_mm256_castsi256_ps(shifted(p)), _mm256_castsi256_ps(shifted(p + 8))};
}
MANTOU_INLINE Vec from_bytes(__m128i bytes) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
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
MANTOU_INLINE void store(float* p, Vec x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
MANTOU_INLINE void store(F16Cell* p, Vec x) {
  __m128i* bits = reinterpret_cast<__m128i*>(p);
  _mm_storeu_si128(bits, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(bits + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
MANTOU_INLINE __m256i rounded_bf16(__m256 x) {  // in the low halves of 32 bits
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i near = _mm256_add_epi32(bits, _mm256_add_epi32(_mm256_set1_epi32(0x7fff), odd));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(near, quiet, nan), 16);
}
MANTOU_INLINE void store(BF16Cell* p, Vec x) {
  const __m256i packed = _mm256_packus_epi32(rounded_bf16(x.a), rounded_bf16(x.b));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
MANTOU_INLINE Vec broadcast(float f) { return {_mm256_set1_ps(f), _mm256_set1_ps(f)}; }
MANTOU_INLINE float first_lane(Vec x) { return _mm256_cvtss_f32(x.a); }
MANTOU_INLINE Vec add(Vec x, Vec y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
MANTOU_INLINE Vec sub(Vec x, Vec y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
MANTOU_INLINE Vec mul(Vec x, Vec y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
MANTOU_INLINE Vec quotient(Vec x, Vec y) {
  return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
MANTOU_INLINE Vec fma(Vec x, Vec y, Vec z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
MANTOU_INLINE Vec max_of(Vec x, Vec y) {  // y where one is NaN
  return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
MANTOU_INLINE Vec min_of(Vec x, Vec y) {  // y where one is NaN
  return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
MANTOU_INLINE Vec magnitude(Vec x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
MANTOU_INLINE Vec pick_less(Vec a, Vec b, Vec x, Vec y) {  // a < b ? x : y
  return {_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(a.a, b.a, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(a.b, b.b, _CMP_LT_OQ))};
}
MANTOU_INLINE Vec round_even(Vec x) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, kMode), _mm256_round_ps(x.b, kMode)};
}
MANTOU_INLINE __m256 power_of_2(__m256 n) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}
MANTOU_INLINE Vec power_of_2(Vec n) {  // n an integer in −126 … 127
  return {power_of_2(n.a), power_of_2(n.b)};
}
// Lanes i and i + 8, then + 4, + 2, + 1.
MANTOU_INLINE float horizontal_max(Vec v) {
  const __m256 h = _mm256_max_ps(v.a, v.b);
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
MANTOU_INLINE float horizontal_sum(Vec v) {
  const __m256 h = _mm256_add_ps(v.a, v.b);
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
MANTOU_INLINE void prefetch(const char* p) { _mm_prefetch(p, _MM_HINT_T1); }

#include "backends/cpu/kernels/attention_append.inc"
#include "backends/cpu/kernels/attention_product.inc"
#include "backends/cpu/kernels/attention_tile.inc"

}  // namespace

const AttentionKernels kAttentionAvx2 = kKernels;

}  // namespace mantou::cpu

#endif  // __x86_64__
