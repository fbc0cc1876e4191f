// Rows taken out of weights, against decode_row of the whole weight.
#include "base/raw_tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/error.h"

namespace mantou {
namespace {

constexpr int64_t kRows = 6, kCols = 32;

class SelectRows : public testing::Test {
 protected:
  SelectRows() : values_(kRows * kCols) {
    std::iota(values_.begin(), values_.end(), 1.0f);
    weight_.data = {"w", DType::kF32, {kRows, kCols}, std::as_bytes(std::span(values_)), nullptr};
    weight_.rows = kRows;
    weight_.cols = kCols;
  }

  static std::vector<float> row(const RawWeight& weight, int64_t r) {
    std::vector<float> out(size_t(weight.cols));
    decode_row(weight, r, out);
    return out;
  }

  void expect_rows(const RawWeight& selected, const std::vector<uint32_t>& rows) const {
    ASSERT_EQ(selected.rows, int64_t(rows.size()));
    for (size_t i = 0; i < rows.size(); ++i)
      EXPECT_EQ(row(selected, int64_t(i)), row(weight_, rows[i])) << i;
  }

  std::vector<float> values_;
  RawWeight weight_;
};

TEST_F(SelectRows, ARunIsAViewAndAnythingElseACopy) {
  const std::vector<uint32_t> run = {2, 3, 4}, mixed = {5, 0, 0, 3};
  const RawWeight view = select_rows(weight_, run), copy = select_rows(weight_, mixed);
  EXPECT_EQ(view.data.bytes.data(), weight_.data.bytes.data() + 2 * kCols * sizeof(float));
  expect_rows(view, run);
  expect_rows(copy, mixed);
}

TEST_F(SelectRows, StoredOrderIsFollowed) {
  weight_.row_order = {1, 0, 3, 2, 5, 4};
  const std::vector<uint32_t> rows = {0, 1, 4};
  expect_rows(select_rows(weight_, rows), rows);
}

TEST_F(SelectRows, ScalesAndBiasesGoWithTheirRows) {
  std::vector<uint32_t> codes(kRows * kCols / 8);
  std::iota(codes.begin(), codes.end(), 0x12345678u);
  std::vector<float> scales(kRows), biases(kRows);
  std::iota(scales.begin(), scales.end(), 1.0f);
  std::iota(biases.begin(), biases.end(), -3.0f);
  weight_.data = {"w", DType::kU32, {kRows, kCols / 8}, std::as_bytes(std::span(codes)), nullptr};
  weight_.scales =
      RawTensor{"s", DType::kF32, {kRows, 1}, std::as_bytes(std::span(scales)), nullptr};
  weight_.biases =
      RawTensor{"b", DType::kF32, {kRows, 1}, std::as_bytes(std::span(biases)), nullptr};
  weight_.bits = 4;
  weight_.group = 32;
  for (const std::vector<uint32_t>& rows : {std::vector<uint32_t>{1, 2}, {4, 1, 5}})
    expect_rows(select_rows(weight_, rows), rows);
}

TEST_F(SelectRows, RowsBeyondTheWeightAreRefused) {
  const std::vector<uint32_t> rows = {kRows};
  EXPECT_THROW(select_rows(weight_, rows), Error);
}

}  // namespace
}  // namespace mantou
