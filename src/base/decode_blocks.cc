#include "base/decode_blocks.h"

#include <cmath>

#include "base/byte_load.h"
#include "base/code_tables.h"
#include "base/error.h"

namespace mantou {
namespace {

// Blocks of 32: codes 0 … 15 are the low nibbles, 16 … 31 the high ones.

void decode_q4_0(const std::byte* block, float* out) {
  const float d = load_f16(block);
  for (int j = 0; j < 16; ++j) {
    const int q = byte_at(block + 2 + j);
    out[j] = d * float((q & 15) - 8);
    out[j + 16] = d * float((q >> 4) - 8);
  }
}

void decode_q4_1(const std::byte* block, float* out) {
  const float d = load_f16(block), m = load_f16(block + 2);
  for (int j = 0; j < 16; ++j) {
    const int q = byte_at(block + 4 + j);
    out[j] = d * float(q & 15) + m;
    out[j + 16] = d * float(q >> 4) + m;
  }
}

// Bit i of `high` is the fifth bit of code i.
void decode_q5_0(const std::byte* block, float* out) {
  const float d = load_f16(block);
  const auto high = load<uint32_t>(block + 2);
  for (int j = 0; j < 16; ++j) {
    const int q = byte_at(block + 6 + j);
    const int low_code = (q & 15) | int(high >> j & 1) << 4;
    const int high_code = q >> 4 | int(high >> (j + 16) & 1) << 4;
    out[j] = d * float(low_code - 16);
    out[j + 16] = d * float(high_code - 16);
  }
}

void decode_q5_1(const std::byte* block, float* out) {
  const float d = load_f16(block), m = load_f16(block + 2);
  const auto high = load<uint32_t>(block + 4);
  for (int j = 0; j < 16; ++j) {
    const int q = byte_at(block + 8 + j);
    out[j] = d * float((q & 15) | int(high >> j & 1) << 4) + m;
    out[j + 16] = d * float(q >> 4 | int(high >> (j + 16) & 1) << 4) + m;
  }
}

void decode_q8_0(const std::byte* block, float* out) {
  const float d = load_f16(block);
  for (int j = 0; j < 32; ++j) out[j] = d * float(load<int8_t>(block + 2 + j));
}

// 16 bytes of nibbles that stand for entries of a table.
void decode_table(float scale, const int8_t (&table)[16], const std::byte* codes, float* out) {
  for (int j = 0; j < 16; ++j) {
    const int q = byte_at(codes + j);
    out[j] = scale * float(table[q & 15]);
    out[j + 16] = scale * float(table[q >> 4]);
  }
}

void decode_iq4_nl(const std::byte* block, float* out) {
  decode_table(load_f16(block), kIq4Values, block + 2, out);
}

// The scale is 2^(e − 127); the table holds doubled values.
void decode_mxfp4(const std::byte* block, float* out) {
  decode_table(std::ldexp(1.0f, byte_at(block) - 128), kE2m1Doubled, block + 1, out);
}

// Super-blocks of 256.

struct ScaleMin {
  int scale, min;
};

// Sub-block j of 8: six-bit scales and minima in 12 bytes. The first four lie in the low six bits
// of bytes 0 … 3 (scales) and 4 … 7 (minima); the others have their low nibbles in bytes 8 … 11 and
// their top two bits in the top bits of the first eight.
ScaleMin scale_min(const std::byte* packed, int j) {
  if (j < 4) return {byte_at(packed + j) & 63, byte_at(packed + j + 4) & 63};
  const int low = byte_at(packed + j + 4);
  return {(low & 15) | byte_at(packed + j - 4) >> 6 << 4, low >> 4 | byte_at(packed + j) >> 6 << 4};
}

// Each 32 bytes of codes hold two sub-blocks: low nibbles, then high nibbles.
void decode_q4_k(const std::byte* block, float* out) {
  const float d = load_f16(block), dmin = load_f16(block + 2);
  for (int j = 0; j < 8; ++j) {
    const ScaleMin s = scale_min(block + 4, j);
    const float scale = d * float(s.scale), min = dmin * float(s.min);
    const std::byte* codes = block + 16 + j / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int q = byte_at(codes + i) >> (j % 2 * 4) & 15;
      out[j * 32 + i] = scale * float(q) - min;
    }
  }
}

// As Q4_K, with the fifth bit of element i of sub-block j in bit j of byte i of 32.
void decode_q5_k(const std::byte* block, float* out) {
  const float d = load_f16(block), dmin = load_f16(block + 2);
  for (int j = 0; j < 8; ++j) {
    const ScaleMin s = scale_min(block + 4, j);
    const float scale = d * float(s.scale), min = dmin * float(s.min);
    const std::byte* codes = block + 48 + j / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int high = byte_at(block + 16 + i) >> j & 1;
      const int q = (byte_at(codes + i) >> (j % 2 * 4) & 15) | high << 4;
      out[j * 32 + i] = scale * float(q) - min;
    }
  }
}

// 128 bytes of low nibbles, 64 of two high bits, 16 signed scales (one per 16 elements), d. Each
// half of 128 elements is four runs of 32: low nibbles of 64 bytes, then their high nibbles; run r
// has its high bits at bits 2r of 32 bytes.
void decode_q6_k(const std::byte* block, float* out) {
  const float d = load_f16(block + 208);
  for (int half = 0; half < 2; ++half) {
    const std::byte* low = block + half * 64;
    const std::byte* high = block + 128 + half * 32;
    for (int run = 0; run < 4; ++run) {
      for (int i = 0; i < 32; ++i) {
        const int nibble = byte_at(low + run % 2 * 32 + i) >> (run / 2 * 4) & 15;
        const int q = nibble | (byte_at(high + i) >> (run * 2) & 3) << 4;
        const int at = half * 128 + run * 32 + i;
        const float scale = d * float(load<int8_t>(block + 192 + at / 16));
        out[at] = scale * float(q - 32);
      }
    }
  }
}

// 16 bytes of four-bit scales (low) and minima (high), one for 16 elements each; 64 bytes of
// two-bit codes, d, dmin. Each half of 128 elements has 32 bytes; run r of 32 lies at their bits
// 2r.
void decode_q2_k(const std::byte* block, float* out) {
  const float d = load_f16(block + 80), dmin = load_f16(block + 82);
  for (int at = 0; at < 256; ++at) {
    const int packed = byte_at(block + at / 16);
    const int q = byte_at(block + 16 + at / 128 * 32 + at % 32) >> (at / 32 % 4 * 2) & 3;
    const float scale = d * float(packed & 15), min = dmin * float(packed >> 4);
    out[at] = scale * float(q) - min;
  }
}

// Six-bit scale j of 16, less 32: low nibbles in 8 bytes (eight low, then eight high), top bits in
// four more.
int q3_k_scale(const std::byte* packed, int j) {
  const int low = byte_at(packed + j % 8) >> (j / 8 * 4) & 15;
  return (low | (byte_at(packed + 8 + j % 4) >> (j / 4 * 2) & 3) << 4) - 32;
}

// 32 bytes of third bits (bit j of byte i: element i of run j), 64 of two-bit codes as in Q2_K, 12
// of scales, d.
void decode_q3_k(const std::byte* block, float* out) {
  const float d = load_f16(block + 108);
  for (int at = 0; at < 256; ++at) {
    const int low = byte_at(block + 32 + at / 128 * 32 + at % 32) >> (at / 32 % 4 * 2) & 3;
    const int q = low | (byte_at(block + at % 32) >> (at / 32) & 1) << 2;
    const float scale = d * float(q3_k_scale(block + 96, at / 16));
    out[at] = scale * float(q - 4);
  }
}

// d, u16 of the scales' top bits, four bytes of their low nibbles, then 8 sub-blocks as in IQ4_NL.
void decode_iq4_xs(const std::byte* block, float* out) {
  const float d = load_f16(block);
  const int high = load<uint16_t>(block + 2);
  for (int j = 0; j < 8; ++j) {
    const int low = byte_at(block + 4 + j / 2) >> (j % 2 * 4) & 15;
    const int scale = (low | (high >> (2 * j) & 3) << 4) - 32;
    decode_table(d * float(scale), kIq4Values, block + 8 + 16 * j, out + 32 * j);
  }
}

}  // namespace

DecodeBlock block_decoder(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return decode_q4_0;
    case DType::kQ4_1:
      return decode_q4_1;
    case DType::kQ5_0:
      return decode_q5_0;
    case DType::kQ5_1:
      return decode_q5_1;
    case DType::kQ8_0:
      return decode_q8_0;
    case DType::kQ4_K:
      return decode_q4_k;
    case DType::kQ5_K:
      return decode_q5_k;
    case DType::kQ6_K:
      return decode_q6_k;
    case DType::kQ2_K:
      return decode_q2_k;
    case DType::kQ3_K:
      return decode_q3_k;
    case DType::kIQ4_NL:
      return decode_iq4_nl;
    case DType::kIQ4_XS:
      return decode_iq4_xs;
    case DType::kMXFP4:
      return decode_mxfp4;
    default:
      fail(ErrorCode::kInternal, "{} has no blocks", dtype_info(dtype).name);
  }
}

}  // namespace mantou
