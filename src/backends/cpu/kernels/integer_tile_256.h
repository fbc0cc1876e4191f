// Integer-coded tiles with 256-bit vectors, for two units: maddubs (AVX2) and dpbusd (AVX-512
// VNNI).
//
// Codes are the unsigned operand, activations (|q| ≤ 127) the signed one. How many maddubs results
// fit into 16 bits before they are widened:
//   2 bit: 2·3·127 = 762, 3 bit: 1778, 4 bit: 3810: 8, a whole group     E2M1 (≤ 28): 7112: 4
//   5 bit: 7874: 4     6 bit: 16002: 2
//   8 bit: would saturate; |code − 128| and the activation with the sign of it give ≤ 32512: 1
//   (the values of IQ4, −127 … 113, the same)
// Scales per 16 columns multiply these in 32 bits: Q6_K ≤ 2·16·32·127·128 < 2^24, the others less.
// The lines that pin a value keep g++ 12 from hoisting all rows' broadcasts and spilling them.
#pragma once

#include "backends/cpu/kernels/family_spec.h"
#include "backends/cpu/kernels/kernel_sets.h"
#include "backends/cpu/kernels/simd.h"

namespace mantou::cpu {
namespace {

#if defined(__AVX512VNNI__)
constexpr bool kDotProduct = true;
#else
constexpr bool kDotProduct = false;
#endif

MANTOU_INLINE __m256i load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
MANTOU_INLINE __m128i load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
MANTOU_INLINE __m128i load64(const void* p) {
  return _mm_loadl_epi64(static_cast<const __m128i*>(p));
}
MANTOU_INLINE __m256i broadcast_word(const void* p) {
  int32_t word;
  __builtin_memcpy(&word, p, 4);
  return _mm256_set1_epi32(word);
}
MANTOU_INLINE void pin(__m256i& value) { asm volatile("" : "+x"(value) : : "memory"); }
MANTOU_INLINE void pin(__m256& value) { asm volatile("" : "+x"(value) : : "memory"); }

// One burst a group, for as many bytes as a group takes of its block: far ahead to L2, near to L1.
// One distance alone measured up to 15 % slower for one thread (Sapphire Rapids).
MANTOU_INLINE void prefetch_group(const uint8_t* p, int bytes) {
  for (int at = 0; at < bytes; at += 64) {
    const char* line = reinterpret_cast<const char*>(p) + at;
    _mm_prefetch(line + 4096, _MM_HINT_T1);
    _mm_prefetch(line + 512, _MM_HINT_T0);
  }
}

// Whether codes are multiplied as signed numbers: magnitudes, by activations with their signs.
template <int kFamily>
constexpr bool kSignedCodes = !kDotProduct && kFamilySpecs[kFamily].code_bits() == 8;

// The table of a family for byte shuffles: its values, or unsigned codes.
struct alignas(16) ByteTable {
  int8_t at[16];
};
template <int kFamily>
MANTOU_INLINE constexpr ByteTable byte_table() {
  constexpr FamilySpec kSpec = kFamilySpecs[kFamily];
  ByteTable table{};
  for (int i = 0; i < 16; ++i) {
    const int8_t code = code_table(kSpec.table)[i];
    table.at[i] = kSignedCodes<kFamily> ? code : int8_t(code + kSpec.offset());
  }
  return table;
}
template <int kFamily>
constexpr ByteTable kByteTable = byte_table<kFamily>();

// Stored code vector j of 8 rows; p points at the group, plus 32 for rows 8…15.
template <int kBits>
MANTOU_INLINE __m256i stored_codes(const uint8_t* p, int j) {
  if constexpr (kBits == 8) return load256(p + 64 * j);
  if constexpr (kBits < 4) {
    const __m256i pairs = _mm256_srli_epi16(load256(p + 64 * (j / 4)), 2 * (j & 3));
    __m256i v = _mm256_and_si256(pairs, _mm256_set1_epi8(3));
    if constexpr (kBits == 3) {
      const __m256i plane = load256(p + 128);
      const __m256i high =
          j < 2 ? _mm256_slli_epi16(plane, 2 - j) : _mm256_srli_epi16(plane, j - 2);
      v = _mm256_or_si256(v, _mm256_and_si256(high, _mm256_set1_epi8(4)));
    }
    return v;
  }
  __m256i v = load256(p + 64 * (j & 3));
  if (j >= 4) v = _mm256_srli_epi16(v, 4);
  v = _mm256_and_si256(v, _mm256_set1_epi8(15));
  if constexpr (kBits == 5) {
    const __m256i plane = load256(p + 256);
    const __m256i high = j < 4 ? _mm256_slli_epi16(plane, 4 - j) : _mm256_srli_epi16(plane, j - 4);
    v = _mm256_or_si256(v, _mm256_and_si256(high, _mm256_set1_epi8(0x10)));
  }
  if constexpr (kBits == 6) {
    __m256i high = load256(p + 256 + 64 * (j / 4));
    if ((j & 3) < 2) high = _mm256_slli_epi16(high, 4 - 2 * (j & 3));
    if ((j & 3) > 2) high = _mm256_srli_epi16(high, 2);
    v = _mm256_or_si256(v, _mm256_and_si256(high, _mm256_set1_epi8(0x30)));
  }
  return v;
}

// The codes as they are multiplied: unsigned, or signed where kSignedCodes.
template <int kFamily>
MANTOU_INLINE __m256i code_vector(const uint8_t* p, int j) {
  constexpr FamilySpec kSpec = kFamilySpecs[kFamily];
  const __m256i codes = stored_codes<kSpec.bits>(p, j);
  if constexpr (kSpec.table != CodeTable::kNone) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load128(&kByteTable<kFamily>)), codes);
  } else if constexpr (kSignedCodes<kFamily>) {
    return _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
  }
  return codes;
}

template <ScaleKind kKind>
MANTOU_INLINE __m256 load_scales(const uint8_t* p) {
  if constexpr (kKind == ScaleKind::kF16) return _mm256_cvtph_ps(load128(p));
  if constexpr (kKind == ScaleKind::kBF16)
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
  if constexpr (kKind == ScaleKind::kF32) return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  if constexpr (kKind == ScaleKind::kI8) return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load64(p)));
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load64(p)));
}

// Scale and min of 8 rows for one group.
struct ScalePair {
  __m256 scale, min;
};
template <int kFamily>
MANTOU_INLINE ScalePair load_scale_pair(const uint8_t* block, const BlockGeometry& geometry,
                                        int set, int half) {
  constexpr FamilySpec kSpec = kFamilySpecs[kFamily];
  const int at = set * geometry.scale_bytes + half * (geometry.scale_bytes / 2);
  ScalePair s{load_scales<kSpec.scale>(block + geometry.scales_at + at), _mm256_setzero_ps()};
  if constexpr (kSpec.has_min) s.min = load_scales<kSpec.scale>(block + geometry.mins_at + at);
  if constexpr (kSpec.super()) {
    const uint8_t* supers = block + geometry.supers_at + 16 * half;
    s.scale = _mm256_mul_ps(s.scale, _mm256_cvtph_ps(load128(supers)));
    if constexpr (kSpec.has_min)
      s.min = _mm256_mul_ps(s.min, _mm256_cvtph_ps(load128(supers + 32)));
  }
  return s;
}

// Integer scales of 8 rows for the two 16-column halves of a group: as the second operand of the
// widening multiplication, and as pairs against the activations' half sums.
struct IntegerScales {
  __m256i half[2], pair;
};
template <ScaleKind kKind>
MANTOU_INLINE IntegerScales load_integer_scales(const uint8_t* scales) {
  __m128i bytes0 = load64(scales), bytes1 = load64(scales + 16);
  if constexpr (kKind == ScaleKind::kU4Per16) {
    bytes0 = _mm_and_si128(bytes0, _mm_set1_epi8(15));
    bytes1 = _mm_and_si128(bytes1, _mm_set1_epi8(15));
  }
  const __m256i s0 = _mm256_cvtepi8_epi32(bytes0), s1 = _mm256_cvtepi8_epi32(bytes1);
  IntegerScales s{{s0, s1}, _mm256_blend_epi16(s0, _mm256_slli_epi32(s1, 16), 0xAA)};
  if constexpr (!kDotProduct) {
    s.half[0] = _mm256_blend_epi16(s0, _mm256_slli_epi32(s0, 16), 0xAA);
    s.half[1] = _mm256_blend_epi16(s1, _mm256_slli_epi32(s1, 16), 0xAA);
  }
  return s;
}

// Adds code vectors j … j + kStep − 1 times one row's activations to its integer sums. `multiplier`
// is one per 16-bit lane, or the integer scales.
template <int kFamily, int kStep>
MANTOU_INLINE void accumulate(__m256i& sum, const __m256i* codes,
                              [[maybe_unused]] __m256i magnitude, const int8_t* q, int j,
                              __m256i multiplier) {
  constexpr FamilySpec kSpec = kFamilySpecs[kFamily];
#if defined(__AVX512VNNI__)
  if constexpr (kSpec.per_16()) {
    __m256i d = _mm256_setzero_si256();
    MANTOU_UNROLL for (int i = 0; i < kStep; ++i) {
      d = _mm256_dpbusd_epi32(d, codes[i], broadcast_word(q + 4 * i));
    }
    sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(d, multiplier));
  } else {
    MANTOU_UNROLL for (int i = 0; i < kStep; ++i) {
      sum = _mm256_dpbusd_epi32(sum, codes[i], broadcast_word(q + 4 * i));
    }
  }
#else
  __m256i t;
  if constexpr (kSignedCodes<kFamily>) {
    t = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(broadcast_word(q), codes[0]));
  } else {
    t = _mm256_maddubs_epi16(codes[0], broadcast_word(q));
    MANTOU_UNROLL for (int i = 1; i < kStep; ++i) {
      t = _mm256_add_epi16(t, _mm256_maddubs_epi16(codes[i], broadcast_word(q + 4 * i)));
    }
  }
  if constexpr (kSpec.code_bits() == 4) {
    sum = j == 0 ? t : _mm256_add_epi16(sum, t);
  } else {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(t, multiplier));
  }
#endif
  pin(sum);
}

// The offset of the codes, as an exact integer term.
template <int kFamily>
MANTOU_INLINE __m256i apply_offset(__m256i sum, const QuantizedBlock& x, __m256i scale_pair) {
  constexpr FamilySpec kSpec = kFamilySpecs[kFamily];
  if constexpr (kSpec.code_bits() == 4 && !kDotProduct) {
    sum = _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
  }
  if constexpr (kSpec.per_16()) {
    if constexpr (kSpec.offset() == 0) return sum;
    const __m256i halves = broadcast_word(x.negative_half_sums);
    return _mm256_add_epi32(
        sum, _mm256_slli_epi32(_mm256_madd_epi16(scale_pair, halves), kSpec.offset_log));
  }
  const __m256i negative = broadcast_word(&x.negative_sum);
  if constexpr (kSignedCodes<kFamily>) {  // codes were taken minus 128
    if constexpr (kSpec.offset() == 0) sum = _mm256_sub_epi32(sum, _mm256_slli_epi32(negative, 7));
  } else if constexpr (kSpec.offset() != 0) {
    sum = _mm256_add_epi32(sum, _mm256_slli_epi32(negative, kSpec.offset_log));
  }
  return sum;
}

// Integer sums of 8 weight rows against kRows activation rows over one group.
template <int kFamily, int kRows>
MANTOU_INLINE void group_sums(const uint8_t* codes_at, const QuantizedBlock* x,
                              const __m256i* multipliers, __m256i* sums) {
  constexpr FamilySpec kSpec = kFamilySpecs[kFamily];
  // Code vectors per 16-bit partial sum.
  constexpr int kStep = kDotProduct ? 4 : kSignedCodes<kFamily> ? 1 : kSpec.bits == 6 ? 2 : 4;
  MANTOU_UNROLL for (int m = 0; m < kRows; ++m) sums[m] = _mm256_setzero_si256();
  MANTOU_UNROLL for (int j = 0; j < 8; j += kStep) {
    __m256i codes[kStep];
    MANTOU_UNROLL for (int i = 0; i < kStep; ++i) {
      codes[i] = code_vector<kFamily>(codes_at, j + i);
    }
    const __m256i magnitude = _mm256_abs_epi8(codes[0]);
    MANTOU_UNROLL for (int m = 0; m < kRows; ++m) {
      accumulate<kFamily, kStep>(sums[m], codes, magnitude, x[m].q + 4 * j, j, multipliers[j / 4]);
    }
  }
}

// Subtracts the mins of a block whose mins are integers per 16 columns under a super scale; x: the
// block's activations.
template <int kRows>
MANTOU_INLINE void subtract_mins(const uint8_t* block, const BlockGeometry& geometry,
                                 const QuantizedBlock* x, __m256 (*outer)[kRows]) {
  MANTOU_UNROLL for (int half = 0; half < 2; ++half) {
    __m256i mins[8];  // of the two halves of a group as pairs
    MANTOU_UNROLL for (int g = 0; g < 8; ++g) {
      const uint8_t* packed = block + geometry.scales_at + 32 * g + 8 * half;
      const __m256i nibbles = _mm256_cvtepu8_epi32(load64(packed));
      const __m256i second = _mm256_cvtepu8_epi32(load64(packed + 16));
      mins[g] = _mm256_blend_epi16(_mm256_srli_epi32(nibbles, 4),
                                   _mm256_slli_epi32(_mm256_srli_epi32(second, 4), 16), 0xAA);
    }
    const __m256 super = _mm256_cvtph_ps(load128(block + geometry.supers_at + 32 + 16 * half));
    MANTOU_UNROLL for (int m = 0; m < kRows; ++m) {
      __m256 sum = _mm256_setzero_ps();
      MANTOU_UNROLL for (int g = 0; g < 8; ++g) {
        const QuantizedBlock& at = x[g * kRows + m];
        const __m256i product = _mm256_madd_epi16(mins[g], broadcast_word(at.negative_half_sums));
        sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(product), _mm256_broadcast_ss(&at.scale), sum);
      }
      outer[half][m] = _mm256_fnmadd_ps(sum, super, outer[half][m]);
      pin(outer[half][m]);
    }
  }
}

template <int kRows>
MANTOU_INLINE void store_tile(const __m256 (*sums)[kRows], float* y, size_t ldy, int valid_rows,
                              int valid_cols) {
  MANTOU_UNROLL for (int m = 0; m < kRows; ++m) {
    if (m >= valid_rows) continue;
    if (valid_cols == kTileRows) {
      _mm256_storeu_ps(y + size_t(m) * ldy, sums[0][m]);
      _mm256_storeu_ps(y + size_t(m) * ldy + 8, sums[1][m]);
    } else {
      float edge[kTileRows];
      _mm256_storeu_ps(edge, sums[0][m]);
      _mm256_storeu_ps(edge + 8, sums[1][m]);
      __builtin_memcpy(y + size_t(m) * ldy, edge, size_t(valid_cols) * sizeof(float));
    }
  }
}

template <int kFamily, int kRows>
void tile(const std::byte* weights, int blocks, int group_shift, const QuantizedBlock* x, float* y,
          size_t ldy, int valid_rows, int valid_cols) {
  constexpr FamilySpec kSpec = kFamilySpecs[kFamily];
  constexpr bool kIntegerScales = kSpec.per_16();
  const int shift = kSpec.affine ? group_shift : 0;
  const BlockGeometry geometry = block_geometry(kSpec, shift);
  const int group_share = kSpec.affine ? 64 * kSpec.bits : geometry.bytes / geometry.groups;
  const auto* block = reinterpret_cast<const uint8_t*>(weights);
  __m256 sums[2][kRows];   // [rows 0…7 and 8…15 of the tile][activation row]
  __m256 outer[2][kRows];  // integer scales only: over the finished blocks
  MANTOU_UNROLL for (int m = 0; m < kRows; ++m) {
    sums[0][m] = sums[1][m] = outer[0][m] = outer[1][m] = _mm256_setzero_ps();
  }
  for (int b = 0; b < blocks; ++b, block += geometry.bytes) {
#pragma GCC unroll 1
    for (int g = 0; g < geometry.groups; ++g, x += kRows) {
      prefetch_group(block + g * group_share, group_share);
      MANTOU_UNROLL for (int half = 0; half < 2; ++half) {
        const __m256i ones = _mm256_set1_epi16(1);
        IntegerScales integer{{ones, ones}, ones};
        if constexpr (kIntegerScales)
          integer =
              load_integer_scales<kSpec.scale>(block + geometry.scales_at + 32 * g + 8 * half);
        __m256i products[kRows];
        group_sums<kFamily, kRows>(block + g * geometry.code_bytes + 32 * half, x, integer.half,
                                   products);
        ScalePair s{};
        if constexpr (!kIntegerScales)
          s = load_scale_pair<kFamily>(block, geometry, g >> shift, half);
        MANTOU_UNROLL for (int m = 0; m < kRows; ++m) {
          const __m256i total = apply_offset<kFamily>(products[m], x[m], integer.pair);
          __m256 scale = _mm256_broadcast_ss(&x[m].scale);
          if constexpr (!kIntegerScales) scale = _mm256_mul_ps(s.scale, scale);
          sums[half][m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(total), scale, sums[half][m]);
          if constexpr (kSpec.has_min && !kIntegerScales) {
            sums[half][m] =
                _mm256_fmadd_ps(s.min, _mm256_broadcast_ss(&x[m].scaled_sum), sums[half][m]);
          }
          pin(sums[half][m]);
        }
      }
    }
    if constexpr (kIntegerScales) {
      MANTOU_UNROLL for (int half = 0; half < 2; ++half) {
        const __m256 super = _mm256_cvtph_ps(load128(block + geometry.supers_at + 16 * half));
        MANTOU_UNROLL for (int m = 0; m < kRows; ++m) {
          outer[half][m] = _mm256_fmadd_ps(sums[half][m], super, outer[half][m]);
          sums[half][m] = _mm256_setzero_ps();
        }
      }
    }
    if constexpr (kIntegerScales && kSpec.has_min)
      subtract_mins<kRows>(block, geometry, x - 8 * kRows, outer);
  }
  store_tile<kRows>(kIntegerScales ? outer : sums, y, ldy, valid_rows, valid_cols);
}

template <int kPanelKind, int... kFamily>
void fill(KernelTable& table, IndexList<kFamily...>) {
  ((table.quantized_tile[kFamily][kPanelKind] = tile<kFamily, kPanelSizes[kPanelKind]>), ...);
}

}  // namespace
}  // namespace mantou::cpu
