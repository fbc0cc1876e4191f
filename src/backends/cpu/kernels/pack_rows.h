// Rows of the source formats into one row of a packed tile; the inner part of pack.cc.
//
// Each function reads one row from its file bytes in order and writes the row `r` (0…15) of a tile
// that was zeroed. A "word" is 32 bits: 4 codes of one row, the unit of the packed layout. GGUF
// layouts: ggml's block_q4_0 … block_q6_K, block_iq4_nl, block_iq4_xs, block_mxfp4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backends/cpu/kernels/family_spec.h"

namespace mantou::cpu {

inline uint32_t load_word(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, 4);
  return word;
}
inline void store_word(uint8_t* p, uint32_t word) { std::memcpy(p, &word, 4); }

constexpr uint32_t kLowNibbles = 0x0f0f0f0f, kHighNibbles = 0xf0f0f0f0, kOnes = 0x01010101,
                   kThrees = 0x03030303, kSignBits = 0x80808080;

// One bit of 8 four-column words: bits `c` of `bits` = column c. Byte i, bit j of the result =
// column 4·j + i.
inline uint32_t bit_plane(uint32_t bits) {
  uint32_t plane = 0;
  for (int i = 0; i < 4; ++i) {
    uint32_t x = bits >> i & 0x11111111u;
    x = (x | x >> 3) & 0x03030303u;
    x = (x | x >> 6) & 0x000f000fu;
    x = (x | x >> 12) & 0xffu;
    plane |= x << (8 * i);
  }
  return plane;
}

// Where row r's words of a block are.
struct RowWriter {
  const BlockGeometry& geometry;
  uint8_t* block;
  int r;

  uint8_t* code_word(int group, int vector) const {
    return block + group * geometry.code_bytes + 64 * vector + 4 * r;
  }
  uint8_t* scale(int set) const {
    return block + geometry.scales_at + set * geometry.scale_bytes + geometry.scale_bytes / 16 * r;
  }
  uint8_t* min(int set) const {
    return block + geometry.mins_at + set * geometry.scale_bytes + geometry.scale_bytes / 16 * r;
  }
  uint8_t* super(int index) const { return block + geometry.supers_at + 32 * index + 2 * r; }
};

// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: blocks of 32 columns {f16 d, [f16 m], [u32 high bits], codes}. The
// nibble order of GGUF (column i low, i + 16 high) is that of the packed words.
template <int kBits, bool kMin>
void pack_gguf32_row(const uint8_t* src, int cols, int r, const BlockGeometry& geometry,
                     uint8_t* tile) {
  constexpr int kHead = kMin ? 4 : 2, kHigh = kBits == 5 ? 4 : 0, kCodes = kBits == 8 ? 32 : 16;
  for (int k = 0; k < cols; k += 32) {
    const int group = k / 32 % geometry.groups;
    const RowWriter row{geometry, tile + k / (32 * geometry.groups) * geometry.bytes, r};
    std::memcpy(row.scale(group), src, 2);
    if constexpr (kMin) std::memcpy(row.min(group), src + 2, 2);
    const uint8_t* codes = src + kHead + kHigh;
    if constexpr (kBits == 5)
      store_word(row.code_word(group, 4), bit_plane(load_word(src + kHead)));
    if constexpr (kBits == 8) {
      for (int v = 0; v < 8; ++v)
        store_word(row.code_word(group, v), load_word(codes + 4 * v) ^ kSignBits);
    } else {
      for (int v = 0; v < 4; ++v) store_word(row.code_word(group, v), load_word(codes + 4 * v));
    }
    src += kHead + kHigh + kCodes;
  }
}

// Two-bit codes of 16 columns, at bits `shift` of 16 bytes: four code vectors as one plane.
inline uint32_t pair_plane(const uint8_t* bytes, int shift) {
  uint32_t plane = 0;
  for (int j = 0; j < 4; ++j) plane |= (load_word(bytes + 4 * j) >> shift & kThrees) << (2 * j);
  return plane;
}

// Bit `bit` of 32 bytes, one for each column, as one plane.
inline uint32_t byte_bit_plane(const uint8_t* bytes, int bit) {
  uint32_t plane = 0;
  for (int j = 0; j < 8; ++j) plane |= (load_word(bytes + 4 * j) >> bit & kOnes) << j;
  return plane;
}

// The 12 bytes of six-bit scales and mins of Q4_K and Q5_K.
inline void unpack_k_scales(const uint8_t* packed, uint8_t* scales, uint8_t* mins) {
  for (int j = 0; j < 4; ++j) {
    scales[j] = packed[j] & 63;
    mins[j] = packed[j + 4] & 63;
    scales[j + 4] = uint8_t((packed[j + 8] & 15) | (packed[j] >> 6) << 4);
    mins[j + 4] = uint8_t((packed[j + 8] >> 4) | (packed[j + 4] >> 6) << 4);
  }
}

// Words v of the low nibbles (or high, of an odd group) of 32 bytes, columns 0…15 low, 16…31 high.
inline uint32_t nibble_word(const uint8_t* bytes, int v, bool high) {
  const uint32_t a = load_word(bytes + 4 * v), b = load_word(bytes + 16 + 4 * v);
  return high ? (a >> 4 & kLowNibbles) | (b & kHighNibbles)
              : (a & kLowNibbles) | (b & kLowNibbles) << 4;
}

// Q4_K, Q5_K: {f16 d, f16 dmin, 12 bytes of scales, [32 bytes of high bits], 128 bytes of nibbles};
// the min is −dmin · m.
template <int kBits>
void pack_q45k_row(const uint8_t* src, int cols, int r, const BlockGeometry& geometry,
                   uint8_t* tile) {
  constexpr int kHigh = kBits == 5 ? 32 : 0;
  for (int k = 0; k < cols; k += 256) {
    const RowWriter row{geometry, tile + k / 256 * geometry.bytes, r};
    std::memcpy(row.super(0), src, 2);
    const uint8_t negated[2] = {src[2], uint8_t(src[3] ^ 0x80)};
    std::memcpy(row.super(1), negated, 2);
    uint8_t scales[8], mins[8];
    unpack_k_scales(src + 4, scales, mins);
    const uint8_t* high = src + 16;
    const uint8_t* nibbles = src + 16 + kHigh;
    for (int g = 0; g < 8; ++g) {
      *row.scale(g) = scales[g];
      *row.min(g) = mins[g];
      for (int v = 0; v < 4; ++v)
        store_word(row.code_word(g, v), nibble_word(nibbles + g / 2 * 32, v, g % 2 == 1));
      if constexpr (kBits == 5) store_word(row.code_word(g, 4), byte_bit_plane(high, g));
    }
    src += 16 + kHigh + 128;
  }
}

// Q6_K: {128 bytes of low nibbles, 64 bytes of high bits, 16 i8 scales, f16 d}, in halves of 128
// columns.
inline void pack_q6k_row(const uint8_t* src, int cols, int r, const BlockGeometry& geometry,
                         uint8_t* tile) {
  for (int k = 0; k < cols; k += 256) {
    const RowWriter row{geometry, tile + k / 256 * geometry.bytes, r};
    for (int g = 0; g < 8; ++g) {
      const uint8_t* nibbles = src + g / 4 * 64 + g % 2 * 32;
      const uint8_t* high = src + 128 + g / 4 * 32;
      const int shift = 2 * (g % 4);
      for (int v = 0; v < 4; ++v)
        store_word(row.code_word(g, v), nibble_word(nibbles, v, g % 4 >= 2));
      for (int p = 0; p < 2; ++p)
        store_word(row.code_word(g, 4 + p), pair_plane(high + 16 * p, shift));
      *row.scale(2 * g) = src[192 + 2 * g];
      *row.scale(2 * g + 1) = src[192 + 2 * g + 1];
    }
    std::memcpy(row.super(0), src + 208, 2);
    src += 210;
  }
}

// Q2_K: {16 bytes of scales and mins, 64 bytes of codes, f16 d, f16 dmin}; each half of 128 columns
// has 32 bytes of codes.
inline void pack_q2k_row(const uint8_t* src, int cols, int r, const BlockGeometry& geometry,
                         uint8_t* tile) {
  for (int k = 0; k < cols; k += 256) {
    const RowWriter row{geometry, tile + k / 256 * geometry.bytes, r};
    for (int g = 0; g < 8; ++g) {
      for (int p = 0; p < 2; ++p)
        store_word(row.code_word(g, p), pair_plane(src + 16 + g / 4 * 32 + 16 * p, 2 * (g % 4)));
      *row.scale(2 * g) = src[2 * g];
      *row.scale(2 * g + 1) = src[2 * g + 1];
    }
    std::memcpy(row.super(0), src + 80, 2);
    const uint8_t negated[2] = {src[82], uint8_t(src[83] ^ 0x80)};
    std::memcpy(row.super(1), negated, 2);
    src += 84;
  }
}

// Q3_K: {32 bytes of third bits, 64 bytes of codes as in Q2_K, 12 bytes of six-bit scales, f16 d}.
inline void pack_q3k_row(const uint8_t* src, int cols, int r, const BlockGeometry& geometry,
                         uint8_t* tile) {
  for (int k = 0; k < cols; k += 256) {
    const RowWriter row{geometry, tile + k / 256 * geometry.bytes, r};
    for (int g = 0; g < 8; ++g) {
      for (int p = 0; p < 2; ++p)
        store_word(row.code_word(g, p), pair_plane(src + 32 + g / 4 * 32 + 16 * p, 2 * (g % 4)));
      store_word(row.code_word(g, 2), byte_bit_plane(src, g));
    }
    const uint8_t* packed = src + 96;
    for (int set = 0; set < 16; ++set) {
      const int low = packed[set % 8] >> (set / 8 * 4) & 15;
      const int high = packed[8 + set % 4] >> (set / 4 * 2) & 3;
      *row.scale(set) = uint8_t((low | high << 4) - 32);
    }
    std::memcpy(row.super(0), src + 108, 2);
    src += 110;
  }
}

// IQ4_XS: {f16 d, u16 of high bits of the scales, 4 bytes of their nibbles, 128 bytes of nibbles}.
inline void pack_iq4xs_row(const uint8_t* src, int cols, int r, const BlockGeometry& geometry,
                           uint8_t* tile) {
  for (int k = 0; k < cols; k += 256) {
    const RowWriter row{geometry, tile + k / 256 * geometry.bytes, r};
    std::memcpy(row.super(0), src, 2);
    const int high_bits = src[2] | src[3] << 8;
    for (int g = 0; g < 8; ++g) {
      const int low = src[4 + g / 2] >> (g % 2 * 4) & 15;
      *row.scale(g) = uint8_t((low | (high_bits >> (2 * g) & 3) << 4) - 32);
      for (int v = 0; v < 4; ++v)
        store_word(row.code_word(g, v), load_word(src + 8 + 16 * g + 4 * v));
    }
    src += 136;
  }
}

// 2^(exponent − 128), the scale of doubled E2M1 codes, as bf16; subnormal for 0 and 1.
inline uint16_t e8m0_half_as_bf16(int exponent) {
  return uint16_t(exponent < 2 ? 0x20 << exponent : (exponent - 1) << 7);
}

// MXFP4 of GGUF: blocks of 32 columns {u8 exponent, 16 bytes of nibbles}.
inline void pack_mxfp4_row(const uint8_t* src, int cols, int r, const BlockGeometry& geometry,
                           uint8_t* tile) {
  for (int k = 0; k < cols; k += 32) {
    const int group = k / 32 % geometry.groups;
    const RowWriter row{geometry, tile + k / (32 * geometry.groups) * geometry.bytes, r};
    const uint16_t scale = e8m0_half_as_bf16(src[0]);
    std::memcpy(row.scale(group), &scale, 2);
    for (int v = 0; v < 4; ++v) store_word(row.code_word(group, v), load_word(src + 1 + 4 * v));
    src += 17;
  }
}

// Four nibbles of 16 bits, lowest first, as the four bytes of a word.
inline uint32_t spread_nibbles(uint32_t half) {
  const uint32_t x = (half | half << 8) & 0x00ff00ffu;
  return (x | x << 4) & kLowNibbles;
}

// Code `index` of a little-endian stream of codes of `bits`.
inline uint32_t stream_code(const uint8_t* stream, size_t index, int bits) {
  const size_t bit = index * size_t(bits);
  uint32_t value = stream[bit / 8];
  if (bit % 8 + size_t(bits) > 8) value |= uint32_t(stream[bit / 8 + 1]) << 8;
  return value >> (bit % 8) & ((1u << bits) - 1);
}

// Four codes of `bits` from column k on as the bytes of a word.
inline uint32_t code_word_at(const uint8_t* codes, int k, int bits) {
  if (bits == 8) return load_word(codes + k);
  if (bits == 4) return spread_nibbles(uint32_t(codes[k / 2] | codes[k / 2 + 1] << 8));
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word |= stream_code(codes, size_t(k) + size_t(i), bits) << (8 * i);
  return word;
}

// One row of an MLX affine matrix: codes of `bits` in `codes`, scales and mins of kScaleBytes / 16
// bytes each. kBits is 4 or 8: the bits as stored, at least `bits`. cols is a multiple of the
// group.
template <int kBits>
void pack_affine_row(const uint8_t* codes, const uint8_t* scales, const uint8_t* mins, int cols,
                     int bits, int group_shift, int r, const BlockGeometry& geometry,
                     uint8_t* tile) {
  const size_t size = size_t(geometry.scale_bytes / 16);
  for (int k = 0; k < cols; k += 32) {
    const int group = k / 32 % geometry.groups, set = group >> group_shift;
    const RowWriter row{geometry, tile + k / (32 * geometry.groups) * geometry.bytes, r};
    const size_t at = size_t(k / 32 >> group_shift) * size;
    std::memcpy(row.scale(set), scales + at, size);
    std::memcpy(row.min(set), mins + at, size);
    for (int v = 0; v < 4; ++v) {
      const uint32_t low = code_word_at(codes, k + 4 * v, bits);
      const uint32_t high = code_word_at(codes, k + 16 + 4 * v, bits);
      if constexpr (kBits == 8) {
        store_word(row.code_word(group, v), low);
        store_word(row.code_word(group, v + 4), high);
      } else {
        store_word(row.code_word(group, v), low | high << 4);
      }
    }
  }
}

// One row of an MLX mxfp4 matrix: nibbles in column order, one exponent for 32.
inline void pack_mlx_mxfp4_row(const uint8_t* codes, const uint8_t* exponents, int cols, int r,
                               const BlockGeometry& geometry, uint8_t* tile) {
  for (int k = 0; k < cols; k += 32) {
    const int group = k / 32 % geometry.groups;
    const RowWriter row{geometry, tile + k / (32 * geometry.groups) * geometry.bytes, r};
    const uint16_t scale = e8m0_half_as_bf16(exponents[k / 32]);
    std::memcpy(row.scale(group), &scale, 2);
    for (int v = 0; v < 4; ++v) {
      const uint32_t low = code_word_at(codes, k + 4 * v, 4);
      store_word(row.code_word(group, v), low | code_word_at(codes, k + 16 + 4 * v, 4) << 4);
    }
  }
}

}  // namespace mantou::cpu
