// The reference decoding of every weight format, straight from the definitions in docs/gguf.md
// and docs/mlx.md.
//
// Plain scalar f32 arithmetic in the order the formats' own reference code uses (a product, then a
// sum; never fused), so that its results can be compared bit by bit. Block bytes may be unaligned.
#include <array>
#include <cmath>
#include <limits>

#include "base/byte_load.h"
#include "base/code_tables.h"
#include "base/decode_blocks.h"
#include "base/error.h"
#include "base/raw_tensor.h"

namespace mantou {
namespace {

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

// MLX's small floats.

// 2^(e − 127); 255 is NaN.
float e8m0(int e) {
  return e == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, e - 127);
}

// Sign, four bits of exponent (bias 7), three of mantissa; no infinities, one NaN of each sign.
float e4m3(int byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  float value = exponent == 0 ? std::ldexp(float(mantissa), -9)
                              : std::ldexp(float(8 + mantissa), exponent - 10);
  if ((byte & 127) == 127) value = std::numeric_limits<float>::quiet_NaN();
  return (byte & 128) != 0 ? -value : value;
}

// Code 8 is −0.
float e2m1(int code) {
  const float magnitude = 0.5f * float(kE2m1Doubled[code & 7]);
  return (code & 8) != 0 ? -magnitude : magnitude;
}

std::array<float, 256> table_of(float (*value)(int)) {
  std::array<float, 256> table;
  for (int i = 0; i < 256; ++i) table[size_t(i)] = value(i);
  return table;
}

void decode_float_codes(const RawWeight& weight, size_t row, std::span<float> out) {
  static const std::array<float, 256> kE8m0 = table_of(e8m0), kE4m3 = table_of(e4m3);
  const auto& scales = weight.mode == QuantMode::kNvFp4 ? kE4m3 : kE8m0;
  const size_t bits = size_t(weight.bits), group = size_t(weight.group);
  const std::byte* codes = weight.data.bytes.data() + row * (out.size() * bits / 8);
  const std::byte* scale_bytes = weight.scales->bytes.data() + row * (out.size() / group);
  for (size_t i = 0; i < out.size(); ++i) {
    const float scale = scales[size_t(byte_at(scale_bytes + i / group))];
    const float value = bits == 8 ? kE4m3[size_t(byte_at(codes + i))]
                                  : e2m1(byte_at(codes + i / 2) >> (i % 2 * 4) & 15);
    out[i] = scale * value;
  }
}

// Whether scales (and biases) are there, in the type and number that the mode asks for.
bool scales_fit(const RawWeight& weight) {
  if (weight.bits < 1 || weight.bits > 8 || weight.group < 1 || weight.cols % weight.group != 0 ||
      weight.cols * weight.bits % 32 != 0)
    return false;
  const RawTensor& scales = *weight.scales;
  const size_t count = size_t(weight.rows * (weight.cols / weight.group));
  if (scales.bytes.size() != dtype_bytes(scales.dtype, count)) return false;
  if (!weight.affine())
    return scales.dtype == DType::kU8 && weight.bits == (weight.mode == QuantMode::kMxFp8 ? 8 : 4);
  return weight.biases && weight.biases->dtype == scales.dtype &&
         weight.biases->bytes.size() == scales.bytes.size();
}

// Bytes that `weight` must hold so that every row can be read.
void check(const RawWeight& weight, int64_t row, size_t cols) {
  const RawTensor& data = weight.data;
  if (row < 0 || row >= weight.rows || int64_t(cols) != weight.cols ||
      (!weight.row_order.empty() && weight.row_order.size() != size_t(weight.rows)))
    fail(ErrorCode::kInternal, "{}: row {} of {} elements asked of [{}, {}]", data.name, row, cols,
         weight.rows, weight.cols);
  size_t row_bytes = 0;
  if (weight.scales) {
    if (!scales_fit(weight))
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
  else if (weight.scales)
    decode_float_codes(weight, stored, out);
  else
    decode_data(weight.data.dtype,
                weight.data.bytes.data() + stored * dtype_bytes(weight.data.dtype, out.size()),
                out);
}

}  // namespace mantou
