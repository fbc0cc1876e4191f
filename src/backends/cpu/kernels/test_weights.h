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
  int bits = 0, group = 0;           // MLX affine
  DType scale_dtype = DType::kBF16;  // MLX affine
  int column_unit() const { return bits != 0 ? group : dtype_info(dtype).block_size; }
};

inline std::vector<WeightFormat> integer_formats() {
  std::vector<WeightFormat> formats;
  for (DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                      DType::kQ4_K, DType::kQ5_K, DType::kQ6_K})
    formats.push_back({std::string(dtype_info(dtype).name), dtype});
  for (int bits : {4, 8})
    for (int group : {32, 64, 128})
      for (DType scale : {DType::kF16, DType::kBF16, DType::kF32})
        formats.push_back({"affine" + std::to_string(bits) + "g" + std::to_string(group) +
                               std::string(dtype_info(scale).name),
                           DType::kU32, bits, group, scale});
  for (int bits : {1, 2, 3, 5, 6})
    formats.push_back({"affine" + std::to_string(bits), DType::kU32, bits, 64, DType::kBF16});
  return formats;
}

inline std::vector<WeightFormat> dense_formats() {
  return {{"F32", DType::kF32}, {"F16", DType::kF16}, {"BF16", DType::kBF16}};
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

// Random codes with scales that give values around 1. Row 0 has all code bits set, row 1 none.
inline RawWeight random_blocks(const WeightFormat& format, int rows, int cols,
                               std::mt19937& random) {
  const DTypeInfo& info = dtype_info(format.dtype);
  const size_t row_bytes = dtype_bytes(format.dtype, size_t(cols));
  std::vector<std::byte> bytes(row_bytes * size_t(rows));
  for (std::byte& byte : bytes) byte = std::byte(random());
  std::memset(bytes.data(), 0xff, row_bytes);
  if (rows > 1) std::memset(bytes.data() + row_bytes, 0, row_bytes);
  std::uniform_real_distribution<float> uniform(0.25f, 1.0f);
  const bool super = format.dtype >= DType::kQ4_K;
  const bool has_min = format.dtype == DType::kQ4_1 || format.dtype == DType::kQ5_1 ||
                       format.dtype == DType::kQ4_K || format.dtype == DType::kQ5_K;
  const size_t scale_at = format.dtype == DType::kQ6_K ? 208 : 0;
  const float code_range = format.dtype == DType::kQ8_0   ? 128
                           : format.dtype == DType::kQ6_K ? 32
                                                          : 16;
  const float scale_range = format.dtype == DType::kQ6_K ? 128 : super ? 64 : 1;
  for (size_t at = 0; at < bytes.size(); at += size_t(info.block_bytes)) {
    float scale = uniform(random) / (code_range * scale_range);
    if (random() % 4 == 0) scale = -scale;
    if (random() % 16 == 0) scale = 0;
    const uint16_t d = f32_to_f16(scale);
    const uint16_t m = f32_to_f16((super ? 1 : -1) * uniform(random) * 0.5f / scale_range);
    std::memcpy(bytes.data() + at + scale_at, &d, 2);
    if (has_min) std::memcpy(bytes.data() + at + 2, &m, 2);
  }
  RawWeight weight;
  weight.data = make_tensor(format.name, format.dtype, rows, cols, std::move(bytes));
  return weight;
}

inline RawWeight random_affine(const WeightFormat& format, int rows, int cols,
                               std::mt19937& random) {
  const size_t row_bytes = size_t(cols) * size_t(format.bits) / 8;
  std::vector<std::byte> codes(row_bytes * size_t(rows));
  for (std::byte& byte : codes) byte = std::byte(random());
  std::memset(codes.data(), 0xff, row_bytes);
  if (rows > 1) std::memset(codes.data() + row_bytes, 0, row_bytes);
  const size_t groups = size_t(rows) * size_t(cols / format.group);
  const float range = float(1 << format.bits);
  RawWeight weight;
  weight.data =
      make_tensor(format.name, DType::kU32, rows, int64_t(row_bytes / 4), std::move(codes));
  weight.scales =
      make_tensor(format.name + ".scales", format.scale_dtype, rows, cols / format.group,
                  random_floats(format.scale_dtype, groups, 0, 1 / range, random));
  weight.biases =
      make_tensor(format.name + ".biases", format.scale_dtype, rows, cols / format.group,
                  random_floats(format.scale_dtype, groups, 0, 0.5f, random));
  weight.bits = format.bits;
  weight.group = format.group;
  return weight;
}

inline RawWeight random_weight(const WeightFormat& format, int rows, int cols, unsigned seed) {
  std::mt19937 random(seed);
  RawWeight weight;
  if (format.bits != 0) {
    weight = random_affine(format, rows, cols, random);
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
