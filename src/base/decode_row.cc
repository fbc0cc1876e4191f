// The reference decoding of every weight format, straight from the definitions in docs/gguf.md.
//
// Plain scalar f32 arithmetic in the order the formats' own reference code uses (a product, then a
// sum; never fused), so that its results can be compared bit by bit. Block bytes may be unaligned.
#include <cmath>
#include <cstring>

#include "base/code_tables.h"
#include "base/error.h"
#include "base/half.h"
#include "base/raw_tensor.h"

namespace mantou {
namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

float load_f16(const std::byte* at) { return f16_to_f32(load<uint16_t>(at)); }

int byte_at(const std::byte* at) { return std::to_integer<int>(*at); }

// Plain types.

float plain_element(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::kF64:
      return float(load<double>(at));
    case DType::kF32:
      return load<float>(at);
    case DType::kF16:
      return load_f16(at);
    case DType::kBF16:
      return bf16_to_f32(load<uint16_t>(at));
    case DType::kI64:
      return float(load<int64_t>(at));
    case DType::kI32:
      return float(load<int32_t>(at));
    case DType::kI16:
      return float(load<int16_t>(at));
    case DType::kI8:
      return float(load<int8_t>(at));
    case DType::kU64:
      return float(load<uint64_t>(at));
    case DType::kU32:
      return float(load<uint32_t>(at));
    case DType::kU16:
      return float(load<uint16_t>(at));
    case DType::kU8:
      return float(load<uint8_t>(at));
    case DType::kBool:
      return load<uint8_t>(at) != 0 ? 1.0f : 0.0f;
    default:
      fail(ErrorCode::kInternal, "{} has no plain elements", dtype_info(dtype).name);
  }
}

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

using DecodeBlock = void (*)(const std::byte*, float*);

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

void decode_data(DType dtype, const std::byte* row, std::span<float> out) {
  const DTypeInfo& info = dtype_info(dtype);
  if (!is_block_type(dtype)) {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = plain_element(dtype, row + i * size_t(info.block_bytes));
    return;
  }
  const DecodeBlock decode = block_decoder(dtype);
  for (size_t i = 0; i < out.size(); i += size_t(info.block_size), row += info.block_bytes)
    decode(row, out.data() + i);
}

// MLX affine.

// Codes are a little-endian bit string: for widths that divide 32 none crosses a word; MLX packs
// the others (3, 5, 6 bits) without padding too.
uint32_t affine_code(const std::byte* row, size_t index, size_t bits) {
  uint32_t code = 0;
  for (size_t bit = 0; bit < bits; ++bit) {
    const size_t at = index * bits + bit;
    code |= uint32_t(byte_at(row + at / 8) >> (at % 8) & 1) << bit;
  }
  return code;
}

void decode_affine(const RawWeight& weight, size_t row, std::span<float> out) {
  const size_t bits = size_t(weight.bits), group = size_t(weight.group);
  const std::byte* codes = weight.data.bytes.data() + row * (out.size() * bits / 8);
  const RawTensor &scales = *weight.scales, &biases = *weight.biases;
  const size_t element = size_t(dtype_info(scales.dtype).block_bytes);
  const size_t first = row * (out.size() / group);
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t at = (first + i / group) * element;
    const float scale = plain_element(scales.dtype, scales.bytes.data() + at);
    const float bias = plain_element(biases.dtype, biases.bytes.data() + at);
    out[i] = scale * float(affine_code(codes, i, bits)) + bias;
  }
}

// Bytes that `weight` must hold so that every row can be read.
void check(const RawWeight& weight, int64_t row, size_t cols) {
  const RawTensor& data = weight.data;
  if (row < 0 || row >= weight.rows || int64_t(cols) != weight.cols ||
      (!weight.row_order.empty() && weight.row_order.size() != size_t(weight.rows)))
    fail(ErrorCode::kInternal, "{}: row {} of {} elements asked of [{}, {}]", data.name, row, cols,
         weight.rows, weight.cols);
  size_t row_bytes = 0;
  if (weight.affine()) {
    const bool whole = weight.bits >= 1 && weight.bits <= 8 && weight.group >= 1 &&
                       weight.cols % weight.group == 0 && weight.cols * weight.bits % 32 == 0 &&
                       weight.biases && weight.biases->dtype == weight.scales->dtype;
    const size_t scale_bytes =
        whole
            ? dtype_bytes(weight.scales->dtype, size_t(weight.rows * (weight.cols / weight.group)))
            : 0;
    if (!whole || weight.scales->bytes.size() != scale_bytes ||
        weight.biases->bytes.size() != scale_bytes)
      fail(ErrorCode::kInternal, "{}: scales do not fit [{}, {}] with {} bits in groups of {}",
           data.name, weight.rows, weight.cols, weight.bits, weight.group);
    row_bytes = cols * size_t(weight.bits) / 8;
  } else {
    row_bytes = dtype_bytes(data.dtype, cols);
  }
  if (data.bytes.size() != row_bytes * size_t(weight.rows))
    fail(ErrorCode::kInternal, "{}: {} bytes, where {} rows of {} bytes are needed", data.name,
         data.bytes.size(), weight.rows, row_bytes);
}

}  // namespace

void decode_row(const RawWeight& weight, int64_t row, std::span<float> out) {
  check(weight, row, out.size());
  const size_t stored = weight.row_order.empty() ? size_t(row) : weight.row_order[size_t(row)];
  if (stored >= size_t(weight.rows))
    fail(ErrorCode::kInternal, "{}: row_order leads to row {} of {}", weight.data.name, stored,
         weight.rows);
  if (weight.affine())
    decode_affine(weight, stored, out);
  else
    decode_data(weight.data.dtype,
                weight.data.bytes.data() + stored * dtype_bytes(weight.data.dtype, out.size()),
                out);
}

}  // namespace mantou
