// Random weights in every stored format, for the tests of the kernels.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/raw_tensor.h"

namespace mantou::cpu {

struct WeightFormat {
  std::string name;
  DType dtype;                       // of the data
  int bits = 0, group = 0;           // MLX
  DType scale_dtype = DType::kBF16;  // MLX affine
  QuantMode mode = QuantMode::kAffine;
  int column_unit() const { return bits != 0 ? group : dtype_info(dtype).block_size; }
};

inline std::vector<WeightFormat> integer_formats() {
  std::vector<WeightFormat> formats;
  for (DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                      DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kQ2_K, DType::kQ3_K,
                      DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4})
    formats.push_back({std::string(dtype_info(dtype).name), dtype});
  for (int bits : {4, 8})
    for (int group : {32, 64, 128})
      for (DType scale : {DType::kF16, DType::kBF16, DType::kF32})
        formats.push_back({"affine" + std::to_string(bits) + "g" + std::to_string(group) +
                               std::string(dtype_info(scale).name),
                           DType::kU32, bits, group, scale});
  for (int bits : {1, 2, 3, 5, 6})
    formats.push_back({"affine" + std::to_string(bits), DType::kU32, bits, 64, DType::kBF16});
  formats.push_back({"mxfp4", DType::kU32, 4, 32, DType::kU8, QuantMode::kMxFp4});
  return formats;
}

inline std::vector<WeightFormat> dense_formats() {
  return {{"F32", DType::kF32}, {"F16", DType::kF16}, {"BF16", DType::kBF16}};
}

// Formats that are packed as bf16.
inline std::vector<WeightFormat> widened_formats() {
  return {{"nvfp4", DType::kU32, 4, 16, DType::kU8, QuantMode::kNvFp4},
          {"mxfp8", DType::kU32, 8, 32, DType::kU8, QuantMode::kMxFp8}};
}

inline RawTensor make_tensor(std::string name, DType dtype, int64_t rows, int64_t cols,
                             std::vector<std::byte> bytes) {
  auto owner = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  return {std::move(name), dtype, {rows, cols}, {owner->data(), owner->size()}, owner};
}

// Normally distributed values of a float type.
inline std::vector<std::byte> random_floats(DType dtype, size_t count, float mean, float deviation,
                                            std::mt19937& random) {
  std::normal_distribution<float> normal(mean, deviation);
  const size_t size = dtype_bytes(dtype, 1);
  std::vector<std::byte> bytes(count * size);
  for (size_t i = 0; i < count; ++i) {
    const float value = normal(random);
    const uint16_t half = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    if (size == 4)
      std::memcpy(bytes.data() + i * 4, &value, 4);
    else
      std::memcpy(bytes.data() + i * 2, &half, 2);
  }
  return bytes;
}

// Where the blocks of a type have their f16 scale and minimum (−1: none), and the largest code
// times the largest integer scale, so that random weights come out around 1.
struct BlockFields {
  DType dtype;
  int scale_at, min_at;
  float range, min_range;
};
inline const BlockFields& block_fields(DType dtype) {
  static const BlockFields kFields[] = {
      {DType::kQ4_0, 0, -1, 16, 1},       {DType::kQ4_1, 0, 2, 16, -1},
      {DType::kQ5_0, 0, -1, 16, 1},       {DType::kQ5_1, 0, 2, 16, -1},
      {DType::kQ8_0, 0, -1, 128, 1},      {DType::kQ4_K, 0, 2, 16 * 64, 64},
      {DType::kQ5_K, 0, 2, 16 * 64, 64},  {DType::kQ6_K, 208, -1, 32 * 128, 1},
      {DType::kQ2_K, 80, 82, 4 * 16, 16}, {DType::kQ3_K, 108, -1, 4 * 32, 1},
      {DType::kIQ4_NL, 0, -1, 128, 1},    {DType::kIQ4_XS, 0, -1, 128 * 32, 1},
      {DType::kMXFP4, -1, -1, 6, 1},
  };
  for (const BlockFields& fields : kFields)
    if (fields.dtype == dtype) return fields;
  return kFields[0];
}

// Random codes with scales that give values around 1. Row 0 has all code bits set, row 1 none.
inline RawWeight random_blocks(const WeightFormat& format, int rows, int cols,
                               std::mt19937& random) {
  const DTypeInfo& info = dtype_info(format.dtype);
  const BlockFields& fields = block_fields(format.dtype);
  const size_t row_bytes = dtype_bytes(format.dtype, size_t(cols));
  std::vector<std::byte> bytes(row_bytes * size_t(rows));
  for (std::byte& byte : bytes) byte = std::byte(random());
  std::memset(bytes.data(), 0xff, row_bytes);
  if (rows > 1) std::memset(bytes.data() + row_bytes, 0, row_bytes);
  std::uniform_real_distribution<float> uniform(0.25f, 1.0f);
  for (size_t at = 0; at < bytes.size(); at += size_t(info.block_bytes)) {
    float scale = uniform(random) / fields.range;
    if (random() % 4 == 0) scale = -scale;
    if (random() % 16 == 0) scale = 0;
    const uint16_t d = f32_to_f16(scale);
    const uint16_t m = f32_to_f16(uniform(random) * 0.5f / fields.min_range);
    if (fields.scale_at >= 0) std::memcpy(bytes.data() + at + fields.scale_at, &d, 2);
    if (fields.min_at >= 0) std::memcpy(bytes.data() + at + fields.min_at, &m, 2);
    if (format.dtype == DType::kMXFP4) bytes[at] = std::byte(120 + random() % 8);
  }
  RawWeight weight;
  weight.data = make_tensor(format.name, format.dtype, rows, cols, std::move(bytes));
  return weight;
}

inline RawWeight random_mlx(const WeightFormat& format, int rows, int cols, std::mt19937& random) {
  const size_t row_bytes = size_t(cols) * size_t(format.bits) / 8;
  std::vector<std::byte> codes(row_bytes * size_t(rows));
  for (std::byte& byte : codes) byte = std::byte(random());
  std::memset(codes.data(), 0xff, row_bytes);
  if (rows > 1) std::memset(codes.data() + row_bytes, 0, row_bytes);
  const size_t groups = size_t(rows) * size_t(cols / format.group);
  const float range = float(1 << format.bits);
  if (format.mode == QuantMode::kMxFp8)  // 127 and 255 are NaN
    for (std::byte& code : codes) code &= std::byte{0xfe};
  RawWeight weight;
  weight.data =
      make_tensor(format.name, DType::kU32, rows, int64_t(row_bytes / 4), std::move(codes));
  weight.bits = format.bits;
  weight.group = format.group;
  weight.mode = format.mode;
  if (format.mode != QuantMode::kAffine) {
    std::vector<std::byte> scales(groups);
    const unsigned middle = format.mode == QuantMode::kNvFp4 ? 0x30 : 123;
    for (std::byte& scale : scales) scale = std::byte(middle + random() % 8);
    weight.scales = make_tensor(format.name + ".scales", DType::kU8, rows, cols / format.group,
                                std::move(scales));
    return weight;
  }
  weight.scales =
      make_tensor(format.name + ".scales", format.scale_dtype, rows, cols / format.group,
                  random_floats(format.scale_dtype, groups, 0, 1 / range, random));
  weight.biases =
      make_tensor(format.name + ".biases", format.scale_dtype, rows, cols / format.group,
                  random_floats(format.scale_dtype, groups, 0, 0.5f, random));
  return weight;
}

inline RawWeight random_weight(const WeightFormat& format, int rows, int cols, unsigned seed) {
  std::mt19937 random(seed);
  RawWeight weight;
  if (format.bits != 0) {
    weight = random_mlx(format, rows, cols, random);
  } else if (is_block_type(format.dtype)) {
    weight = random_blocks(format, rows, cols, random);
  } else {
    weight.data =
        make_tensor(format.name, format.dtype, rows, cols,
                    random_floats(format.dtype, size_t(rows) * size_t(cols), 0, 1, random));
  }
  weight.rows = rows;
  weight.cols = cols;
  return weight;
}

}  // namespace mantou::cpu
