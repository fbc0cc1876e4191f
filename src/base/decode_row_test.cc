// decode_row against gguf-py and MLX (test_decode_row_goldens.h), bit by bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "base/raw_tensor.h"
#include "base/test_decode_row_goldens.h"

namespace mantou {
namespace {

RawTensor tensor(DType dtype, std::vector<int64_t> shape, const void* data) {
  RawTensor out;
  out.name = "t";
  out.dtype = dtype;
  out.shape = std::move(shape);
  const size_t bytes = dtype_bytes(dtype, size_t(out.elements()));
  auto buffer = std::make_shared<std::vector<std::byte>>(bytes);
  std::memcpy(buffer->data(), data, bytes);
  out.bytes = *buffer;
  out.keep_alive = buffer;
  return out;
}

template <class T>
RawWeight dense(DType dtype, int64_t rows, int64_t cols, const std::vector<T>& values) {
  RawWeight weight;
  weight.data = tensor(dtype, {rows, cols}, values.data());
  weight.rows = rows;
  weight.cols = cols;
  return weight;
}

std::vector<float> row_of(const RawWeight& weight, int64_t row) {
  std::vector<float> out(size_t(weight.cols), NAN);
  decode_row(weight, row, out);
  return out;
}

// Each row must equal `bits`, the rows' f32 values one after the other.
void expect_rows(const RawWeight& weight, const std::vector<uint32_t>& bits) {
  ASSERT_EQ(bits.size(), size_t(weight.rows * weight.cols));
  for (int64_t row = 0; row < weight.rows; ++row) {
    const std::vector<float> got = row_of(weight, row);
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), bits[size_t(row) * got.size() + i])
          << "row " << row << ", column " << i << ": " << got[i];
  }
}

RawWeight blocks_weight(const goldens::Blocks& golden) {
  RawWeight weight;
  weight.rows = goldens::kRows;
  weight.cols = golden.cols;
  weight.data = tensor(golden.dtype, {weight.rows, weight.cols}, golden.bytes.data());
  return weight;
}

RawWeight affine_weight(const goldens::Affine& golden) {
  RawWeight weight;
  weight.rows = goldens::kRows;
  weight.cols = golden.cols;
  weight.bits = golden.bits;
  weight.group = golden.group;
  weight.data =
      tensor(DType::kU32, {weight.rows, golden.cols * golden.bits / 32}, golden.codes.data());
  const std::vector<int64_t> shape = {weight.rows, golden.cols / golden.group};
  weight.scales = tensor(golden.dtype, shape, golden.scales.data());
  weight.biases = tensor(golden.dtype, shape, golden.biases.data());
  return weight;
}

RawWeight float_weight(const goldens::FloatCodes& golden) {
  RawWeight weight;
  weight.rows = goldens::kRows;
  weight.cols = golden.cols;
  weight.mode = golden.mode;
  weight.bits = golden.bits;
  weight.group = golden.group;
  weight.data =
      tensor(DType::kU32, {weight.rows, golden.cols * golden.bits / 32}, golden.codes.data());
  weight.scales =
      tensor(DType::kU8, {weight.rows, golden.cols / golden.group}, golden.scales.data());
  return weight;
}

TEST(DecodeRow, BlocksEqualGgufPy) {
  for (const goldens::Blocks& golden : goldens::kBlocks) {
    SCOPED_TRACE(dtype_info(golden.dtype).name);
    expect_rows(blocks_weight(golden), golden.values);
  }
}

TEST(DecodeRow, AffineEqualsMlx) {
  for (const goldens::Affine& golden : goldens::kAffine) {
    SCOPED_TRACE(fmt::format("{} bits, groups of {}, {}", golden.bits, golden.group,
                             dtype_info(golden.dtype).name));
    expect_rows(affine_weight(golden), golden.values);
  }
}

TEST(DecodeRow, FloatModesEqualMlx) {
  for (const goldens::FloatCodes& golden : goldens::kFloatCodes) {
    SCOPED_TRACE(golden.name);
    RawWeight weight = float_weight(golden);
    expect_rows(weight, golden.values);
    weight.scales->dtype = DType::kI8;
    std::vector<float> row(size_t(golden.cols));
    EXPECT_THROW(decode_row(weight, 0, row), Error);
  }
}

TEST(DecodeRow, RowOrderSelectsStoredRows) {
  const goldens::Blocks& golden = goldens::kBlocks.front();
  RawWeight weight = blocks_weight(golden);
  const std::vector<float> first = row_of(weight, 0), second = row_of(weight, 1);
  ASSERT_NE(first, second);
  weight.row_order = {1, 0};
  EXPECT_EQ(row_of(weight, 0), second);
  EXPECT_EQ(row_of(weight, 1), first);

  RawWeight affine = affine_weight(goldens::kAffine.front());
  const std::vector<float> affine_second = row_of(affine, 1);
  affine.row_order = {1, 0};
  EXPECT_EQ(row_of(affine, 0), affine_second);
}

TEST(DecodeRow, PlainTypes) {
  using Row = std::vector<float>;
  EXPECT_EQ(row_of(dense<float>(DType::kF32, 2, 2, {1, 2, 3, -0.5f}), 1), (Row{3, -0.5f}));
  EXPECT_EQ(row_of(dense<double>(DType::kF64, 1, 2, {0.25, -3}), 0), (Row{0.25f, -3}));
  // 1.5 and -2^-24 (the smallest subnormal) in f16; 1.5 and -2^127 in bf16.
  EXPECT_EQ(row_of(dense<uint16_t>(DType::kF16, 1, 2, {0x3e00, 0x8001}), 0),
            (Row{1.5f, -0x1p-24f}));
  EXPECT_EQ(row_of(dense<uint16_t>(DType::kBF16, 1, 2, {0x3fc0, 0xff00}), 0),
            (Row{1.5f, -0x1p127f}));
  EXPECT_EQ(row_of(dense<int64_t>(DType::kI64, 1, 2, {-7, 9}), 0), (Row{-7, 9}));
  EXPECT_EQ(row_of(dense<int32_t>(DType::kI32, 1, 2, {-7, 9}), 0), (Row{-7, 9}));
  EXPECT_EQ(row_of(dense<int16_t>(DType::kI16, 1, 2, {-7, 9}), 0), (Row{-7, 9}));
  EXPECT_EQ(row_of(dense<int8_t>(DType::kI8, 1, 2, {-7, 9}), 0), (Row{-7, 9}));
  EXPECT_EQ(row_of(dense<uint64_t>(DType::kU64, 1, 2, {7, 9}), 0), (Row{7, 9}));
  EXPECT_EQ(row_of(dense<uint32_t>(DType::kU32, 1, 2, {7, 4000000000u}), 0), (Row{7, 4e9f}));
  EXPECT_EQ(row_of(dense<uint16_t>(DType::kU16, 1, 2, {7, 65535}), 0), (Row{7, 65535}));
  EXPECT_EQ(row_of(dense<uint8_t>(DType::kU8, 1, 2, {7, 255}), 0), (Row{7, 255}));
  EXPECT_EQ(row_of(dense<uint8_t>(DType::kBool, 1, 2, {0, 1}), 0), (Row{0, 1}));
}

TEST(DecodeRow, RefusesWhatDoesNotFit) {
  RawWeight weight = blocks_weight(goldens::kBlocks.front());
  std::vector<float> out(size_t(weight.cols));
  EXPECT_THROW(decode_row(weight, -1, out), Error);
  EXPECT_THROW(decode_row(weight, weight.rows, out), Error);
  EXPECT_THROW(decode_row(weight, 0, std::span(out).first(32)), Error);
  weight.row_order = {0, 2};
  EXPECT_THROW(decode_row(weight, 1, out), Error);
  weight.row_order = {0};
  EXPECT_THROW(decode_row(weight, 0, out), Error);
  weight.row_order.clear();
  weight.data.bytes = weight.data.bytes.first(weight.data.bytes.size() - 1);
  EXPECT_THROW(decode_row(weight, 0, out), Error);

  RawWeight affine = affine_weight(goldens::kAffine.front());
  out.resize(size_t(affine.cols));
  affine.scales->bytes = affine.scales->bytes.first(4);
  EXPECT_THROW(decode_row(affine, 0, out), Error);
  affine = affine_weight(goldens::kAffine.front());
  affine.biases.reset();
  EXPECT_THROW(decode_row(affine, 0, out), Error);
}

}  // namespace
}  // namespace mantou
