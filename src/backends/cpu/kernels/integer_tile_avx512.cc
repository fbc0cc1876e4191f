// Integer-coded tiles with 512-bit vectors and dpbusd, for panels of more than 4 rows.

#include "backends/cpu/kernels/family_spec.h"
#include "backends/cpu/kernels/kernel_sets.h"
#include "backends/cpu/kernels/simd.h"

namespace mantou::cpu {
namespace {

MANTOU_INLINE __m256i load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
MANTOU_INLINE __m128i load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

// Straight from memory: g++ 12 loads a copied array as 64-bit integers and takes them apart.
MANTOU_INLINE __m512i broadcast_word(const void* p) {
  int32_t word;
  __builtin_memcpy(&word, p, 4);
  return _mm512_set1_epi32(word);
}

MANTOU_INLINE void prefetch_group(const uint8_t* p, int bytes) {
  for (int at = 0; at < bytes; at += 64)
    _mm_prefetch(reinterpret_cast<const char*>(p) + at + 4096, _MM_HINT_T0);
}

// The table of a family as unsigned codes, for byte shuffles.
struct alignas(16) ByteTable {
  uint8_t at[16];
};
template <int kFamily>
MANTOU_INLINE constexpr ByteTable byte_table() {
  ByteTable table{};
  for (int i = 0; i < 16; ++i)
    table.at[i] =
        uint8_t(code_table(kFamilySpecs[kFamily].table)[i] + kFamilySpecs[kFamily].offset());
  return table;
}
template <int kFamily>
constexpr ByteTable kByteTable = byte_table<kFamily>();

// The eight stored code vectors of a group.
template <int kBits>
MANTOU_INLINE void load_codes(const uint8_t* p, __m512i* codes) {
  constexpr int kOrOfAnd = 0xF8;  // codes | (plane & mask) as one ternary operation
  if constexpr (kBits == 8) {
    MANTOU_UNROLL for (int j = 0; j < 8; ++j) codes[j] = _mm512_loadu_si512(p + 64 * j);
    return;
  }
  if constexpr (kBits < 4) {
    MANTOU_UNROLL for (int j = 0; j < 8; ++j) {
      const __m512i pairs = _mm512_srli_epi16(_mm512_loadu_si512(p + 64 * (j / 4)), 2 * (j & 3));
      codes[j] = _mm512_and_si512(pairs, _mm512_set1_epi8(3));
      if constexpr (kBits == 3) {
        const __m512i plane = _mm512_loadu_si512(p + 128);
        const __m512i high =
            j < 2 ? _mm512_slli_epi16(plane, 2 - j) : _mm512_srli_epi16(plane, j - 2);
        codes[j] = _mm512_ternarylogic_epi32(codes[j], high, _mm512_set1_epi8(4), kOrOfAnd);
      }
    }
    return;
  }
  const __m512i low = _mm512_set1_epi8(15);
  MANTOU_UNROLL for (int j = 0; j < 4; ++j) {
    const __m512i v = _mm512_loadu_si512(p + 64 * j);
    codes[j] = _mm512_and_si512(v, low);
    codes[j + 4] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
  }
  // High bits are shifted inside 16-bit lanes.
  if constexpr (kBits == 5) {
    const __m512i plane = _mm512_loadu_si512(p + 256);
    MANTOU_UNROLL for (int j = 0; j < 8; ++j) {
      const __m512i high =
          j < 4 ? _mm512_slli_epi16(plane, 4 - j) : _mm512_srli_epi16(plane, j - 4);
      codes[j] = _mm512_ternarylogic_epi32(codes[j], high, _mm512_set1_epi8(0x10), kOrOfAnd);
    }
  }
  if constexpr (kBits == 6) {
    MANTOU_UNROLL for (int j = 0; j < 8; ++j) {
      __m512i high = _mm512_loadu_si512(p + 256 + 64 * (j / 4));
      if ((j & 3) < 2) high = _mm512_slli_epi16(high, 4 - 2 * (j & 3));
      if ((j & 3) > 2) high = _mm512_srli_epi16(high, 2);
      codes[j] = _mm512_ternarylogic_epi32(codes[j], high, _mm512_set1_epi8(0x30), kOrOfAnd);
    }
  }
}

// The codes as they are multiplied: unsigned, a table's values plus the offset.
template <int kFamily>
MANTOU_INLINE void unpack_codes(const uint8_t* p, __m512i* codes) {
  load_codes<kFamilySpecs[kFamily].bits>(p, codes);
  if constexpr (kFamilySpecs[kFamily].table != CodeTable::kNone) {
    const __m512i table = _mm512_broadcast_i32x4(load128(&kByteTable<kFamily>));
    MANTOU_UNROLL for (int j = 0; j < 8; ++j) codes[j] = _mm512_shuffle_epi8(table, codes[j]);
  }
}

template <ScaleKind kKind>
MANTOU_INLINE __m512 load_scales(const uint8_t* p) {
  if constexpr (kKind == ScaleKind::kF16) return _mm512_cvtph_ps(load256(p));
  if constexpr (kKind == ScaleKind::kBF16)
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load256(p)), 16));
  if constexpr (kKind == ScaleKind::kF32) return _mm512_loadu_ps(p);
  if constexpr (kKind == ScaleKind::kI8)
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load128(p)));
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load128(p)));
}

// Scale and min of the 16 rows for one group.
struct ScalePair {
  __m512 scale, min;
};
template <int kFamily>
MANTOU_INLINE ScalePair load_scale_pair(const uint8_t* block, const BlockGeometry& geometry,
                                        int set) {
  constexpr FamilySpec kSpec = kFamilySpecs[kFamily];
  const int at = set * geometry.scale_bytes;
  ScalePair s{load_scales<kSpec.scale>(block + geometry.scales_at + at), _mm512_setzero_ps()};
  if constexpr (kSpec.has_min) s.min = load_scales<kSpec.scale>(block + geometry.mins_at + at);
  if constexpr (kSpec.super()) {
    const uint8_t* supers = block + geometry.supers_at;
    s.scale = _mm512_mul_ps(s.scale, _mm512_cvtph_ps(load256(supers)));
    if constexpr (kSpec.has_min)
      s.min = _mm512_mul_ps(s.min, _mm512_cvtph_ps(load256(supers + 32)));
  }
  return s;
}

template <ScaleKind kKind>
MANTOU_INLINE __m512 integer_scales(const uint8_t* p) {
  __m128i bytes = load128(p);
  if constexpr (kKind == ScaleKind::kU4Per16) bytes = _mm_and_si128(bytes, _mm_set1_epi8(15));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

// Subtracts the mins of a block whose mins are integers per 16 columns under a super scale; x: the
// block's activations.
template <int kRows>
MANTOU_INLINE void subtract_mins(const uint8_t* block, const BlockGeometry& geometry,
                                 const QuantizedBlock* x, __m512* outer) {
  __m512i mins[8];  // of the two halves of a group as pairs
  MANTOU_UNROLL for (int g = 0; g < 8; ++g) {
    const uint8_t* packed = block + geometry.scales_at + 32 * g;
    const __m512i first = _mm512_srli_epi32(_mm512_cvtepu8_epi32(load128(packed)), 4);
    const __m512i second = _mm512_srli_epi32(_mm512_cvtepu8_epi32(load128(packed + 16)), 4);
    mins[g] = _mm512_or_si512(first, _mm512_slli_epi32(second, 16));
  }
  const __m512 super = _mm512_cvtph_ps(load256(block + geometry.supers_at + 32));
  MANTOU_UNROLL for (int m = 0; m < kRows; ++m) {
    __m512 sum = _mm512_setzero_ps();
    MANTOU_UNROLL for (int g = 0; g < 8; ++g) {
      const QuantizedBlock& at = x[g * kRows + m];
      const __m512i product = _mm512_madd_epi16(mins[g], broadcast_word(at.negative_half_sums));
      sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(product), _mm512_set1_ps(at.scale), sum);
    }
    outer[m] = _mm512_fnmadd_ps(sum, super, outer[m]);
  }
}

// Sums of a group against one row of activations, with the offset; two chains of dot products. With
// integer scales per 16 columns their sum is below 2 · 32·127·16·128 < 2^24 (Q6_K; less for 2 and 3
// bits), exact in f32 (and faster there: a 32-bit multiplication takes twice the time of a
// conversion and a product).
template <int kFamily>
MANTOU_INLINE __m512 group_sum(const __m512i* codes, const QuantizedBlock& x, __m512 scale0,
                               __m512 scale1) {
  constexpr FamilySpec kSpec = kFamilySpecs[kFamily];
  constexpr bool kIntegerScales = kSpec.per_16();
  __m512i a = _mm512_setzero_si512(), b = a;
  if constexpr (kIntegerScales && kSpec.offset() != 0) {
    const __m512i halves = broadcast_word(x.negative_half_sums);
    a = _mm512_srai_epi32(_mm512_slli_epi32(halves, 16), 16 - kSpec.offset_log);
    b = _mm512_slli_epi32(_mm512_srai_epi32(halves, 16), kSpec.offset_log);
  } else if constexpr (kSpec.offset() != 0) {
    a = _mm512_slli_epi32(_mm512_set1_epi32(x.negative_sum), kSpec.offset_log);
  }
  MANTOU_UNROLL for (int j = 0; j < 4; ++j) {
    a = _mm512_dpbusd_epi32(a, codes[j], broadcast_word(x.q + 4 * j));
    b = _mm512_dpbusd_epi32(b, codes[j + 4], broadcast_word(x.q + 16 + 4 * j));
  }
  if constexpr (kIntegerScales)
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(b), scale1,
                           _mm512_mul_ps(_mm512_cvtepi32_ps(a), scale0));
  return _mm512_cvtepi32_ps(_mm512_add_epi32(a, b));
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
  __m512 sums[kRows];
  __m512 outer[kRows];  // integer scales only: over the finished blocks
  MANTOU_UNROLL for (int m = 0; m < kRows; ++m) sums[m] = outer[m] = _mm512_setzero_ps();
  for (int b = 0; b < blocks; ++b, block += geometry.bytes) {
#pragma GCC unroll 1
    for (int g = 0; g < geometry.groups; ++g, x += kRows) {
      prefetch_group(block + g * group_share, group_share);
      __m512i codes[8];
      unpack_codes<kFamily>(block + g * geometry.code_bytes, codes);
      __m512 scale0 = _mm512_setzero_ps(), scale1 = scale0;
      ScalePair s{};
      if constexpr (kIntegerScales) {
        const uint8_t* scales = block + geometry.scales_at + 32 * g;
        scale0 = integer_scales<kSpec.scale>(scales);
        scale1 = integer_scales<kSpec.scale>(scales + 16);
      } else {
        s = load_scale_pair<kFamily>(block, geometry, g >> shift);
      }
      MANTOU_UNROLL for (int m = 0; m < kRows; ++m) {
        const __m512 total = group_sum<kFamily>(codes, x[m], scale0, scale1);
        __m512 scale = _mm512_set1_ps(x[m].scale);
        if constexpr (!kIntegerScales) scale = _mm512_mul_ps(s.scale, scale);
        sums[m] = _mm512_fmadd_ps(total, scale, sums[m]);
        if constexpr (kSpec.has_min && !kIntegerScales)
          sums[m] = _mm512_fmadd_ps(s.min, _mm512_set1_ps(x[m].scaled_sum), sums[m]);
      }
    }
    if constexpr (kIntegerScales) {
      const __m512 super = _mm512_cvtph_ps(load256(block + geometry.supers_at));
      MANTOU_UNROLL for (int m = 0; m < kRows; ++m) {
        outer[m] = _mm512_fmadd_ps(sums[m], super, outer[m]);
        sums[m] = _mm512_setzero_ps();
      }
      if constexpr (kSpec.has_min) subtract_mins<kRows>(block, geometry, x - 8 * kRows, outer);
    }
  }
  const __mmask16 lanes = __mmask16((1u << valid_cols) - 1);
  MANTOU_UNROLL for (int m = 0; m < kRows; ++m) {
    if (m < valid_rows)
      _mm512_mask_storeu_ps(y + size_t(m) * ldy, lanes, kIntegerScales ? outer[m] : sums[m]);
  }
}

template <int kPanelKind, int... kFamily>
void fill(KernelTable& table, IndexList<kFamily...>) {
  ((table.quantized_tile[kFamily][kPanelKind] = tile<kFamily, kPanelSizes[kPanelKind]>), ...);
}

}  // namespace

void add_integer_tiles_avx512(KernelTable& table) {
  const MakeIndexList<kIntegerFamilies>::Type families;
  table.quantized_panel = 16;
  fill<4>(table, families);
  fill<5>(table, families);
  fill<6>(table, families);
  fill<7>(table, families);
}

}  // namespace mantou::cpu
