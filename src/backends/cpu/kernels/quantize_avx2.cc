#include "backends/cpu/kernels/kernel_sets.h"
#include "backends/cpu/kernels/simd.h"

namespace mantou::cpu {
namespace {

inline int32_t largest_lane(__m256i v) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
  return _mm_cvtsi128_si32(m);
}

inline void quantize_block(const float* x, QuantizedBlock& out) {
  const __m256i magnitude_mask = _mm256_set1_epi32(0x7fffffff);
  __m256 v[4];
  __m256i magnitude = _mm256_setzero_si256();
  MANTOU_UNROLL for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    magnitude =
        _mm256_max_epi32(magnitude, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude_mask));
  }
  const int32_t bits = largest_lane(magnitude);
  float amax;
  __builtin_memcpy(&amax, &bits, 4);
  if (bits >= 0x7f800000 || !(amax > kSmallestQuantized)) {
    out = QuantizedBlock{};
    if (bits >= 0x7f800000) out.scale = out.scaled_sum = __builtin_nanf("");
    return;
  }
  const __m256 inverse = _mm256_set1_ps(127.0f / amax);
  __m256i q[4];
  MANTOU_UNROLL for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));

  // Lanes of `pairs`: sums of the first and the second half, twice each.
  const __m256i pairs =
      _mm256_hadd_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
  __m128i halves = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  halves = _mm_hadd_epi32(halves, halves);
  const int32_t first = _mm_cvtsi128_si32(halves), second = _mm_extract_epi32(halves, 1);

  __m256i bytes =
      _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.q), bytes);
  out.scale = amax / 127.0f;
  out.scaled_sum = out.scale * float(first + second);
  out.negative_sum = -(first + second);
  out.negative_half_sums[0] = int16_t(-first);
  out.negative_half_sums[1] = int16_t(-second);
}

void quantize(const float* x, int cols, QuantizedBlock* out, size_t stride) {
  int k = 0;
  for (; k + 32 <= cols; k += 32, out += stride) quantize_block(x + k, *out);
  if (k == cols) return;
  float padded[32] = {};
  for (int i = 0; k + i < cols; ++i) padded[i] = x[k + i];
  quantize_block(padded, *out);
}

}  // namespace

void add_quantize_avx2(KernelTable& table) { table.quantize = quantize; }

}  // namespace mantou::cpu
