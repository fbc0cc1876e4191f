// Packing loses nothing: unpacked rows equal the reference decoding of the stored ones.
#include "backends/cpu/kernels/packed_weight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "backends/cpu/kernels/test_weights.h"
#include "base/error.h"

namespace mantou::cpu {
namespace {

std::vector<WeightFormat> all_formats() {
  std::vector<WeightFormat> formats = integer_formats();
  for (const WeightFormat& format : dense_formats()) formats.push_back(format);
  for (const WeightFormat& format : widened_formats()) formats.push_back(format);
  return formats;
}

void expect_equal_rows(const RawWeight& weight, const PackedMatrix& packed) {
  std::vector<float> expected(size_t(weight.cols)), actual(size_t(weight.cols));
  for (int row = 0; row < packed.rows; ++row) {
    decode_row(weight, row, expected);
    unpack_row(packed, row, actual.data());
    for (size_t k = 0; k < expected.size(); ++k)
      ASSERT_EQ(actual[k], expected[k]) << "row " << row << " column " << k;
  }
}

TEST(Pack, KeepsEveryValueOfEveryFormat) {
  for (const WeightFormat& format : all_formats()) {
    SCOPED_TRACE(format.name);
    for (int rows : {1, 16, 33, 70}) {
      for (int units : {1, 3}) {
        const int cols = format.column_unit() == 1 ? 37 * units : format.column_unit() * units;
        const RawWeight weight = random_weight(format, rows, cols, unsigned(rows * units));
        for (int threads : {1, 3}) {
          Arena arena;
          ThreadPool pool(threads);
          expect_equal_rows(weight, pack(weight, arena, pool));
        }
      }
    }
  }
}

TEST(Pack, AppliesTheRowOrder) {
  ThreadPool pool(2);
  for (const WeightFormat& format : all_formats()) {
    SCOPED_TRACE(format.name);
    RawWeight weight = random_weight(format, 48, 256, 5);
    weight.row_order.resize(48);
    std::iota(weight.row_order.rbegin(), weight.row_order.rend(), 0u);
    std::swap(weight.row_order[3], weight.row_order[17]);
    Arena arena;
    expect_equal_rows(weight, pack(weight, arena, pool));
  }
}

TEST(Pack, DecodesEveryFormatToF32) {
  ThreadPool pool(2);
  for (const WeightFormat& format : all_formats()) {
    SCOPED_TRACE(format.name);
    const RawWeight weight = random_weight(format, 41, 256, 6);
    Arena arena;
    const PackedMatrix packed = pack_dense_f32(weight, arena, pool);
    EXPECT_EQ(packed.family, Family::kDenseF32);
    expect_equal_rows(weight, packed);
  }
}

TEST(Pack, AddsFewBytes) {
  ThreadPool pool(1);
  for (const WeightFormat& format : integer_formats()) {
    if (format.bits != 0 && format.bits != 4 && format.bits != 8) continue;  // widened
    SCOPED_TRACE(format.name);
    const RawWeight weight = random_weight(format, 64, 1024, 7);
    size_t stored = weight.data.bytes.size();
    if (weight.scales) stored += weight.scales->bytes.size();
    if (weight.biases) stored += weight.biases->bytes.size();
    Arena arena;
    // The six-bit scales of Q3_K become bytes, the exponents of MXFP4 bf16.
    const bool wider = format.dtype == DType::kQ3_K || format.dtype == DType::kMXFP4 ||
                       format.mode == QuantMode::kMxFp4;
    const double most = wider ? 1.06 : 1.03;
    EXPECT_LE(double(pack(weight, arena, pool).bytes()), most * double(stored));
  }
}

TEST(Pack, LayoutIdsTellLayoutsApart) {
  ThreadPool pool(1);
  Arena arena;
  const RawWeight weight = random_weight({"w", DType::kQ4_K}, 64, 512, 8);
  EXPECT_EQ(pack(weight, arena, pool).layout_id(), "v1:Q4_K:0:64x512");
}

std::string error_of(const RawWeight& weight) {
  Arena arena;
  ThreadPool pool(1);
  try {
    pack(weight, arena, pool);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

// The ends of bf16's range: 2^-133 is its smallest value, E4M3 reaches 2^-9 and 1.75 · 2^8.
TEST(Pack, NamesTheTensorWhoseValuesBf16CannotHold) {
  std::vector<std::byte> codes(32, std::byte{0x38}), scale(1);
  RawWeight weight;
  weight.rows = 1;
  weight.cols = weight.group = 32;
  weight.bits = 8;
  weight.mode = QuantMode::kMxFp8;
  const auto error_with = [&](int code, int exponent) {
    codes[5] = std::byte(code);
    scale[0] = std::byte(exponent);
    weight.data = make_tensor("blk.w", DType::kU32, 1, 8, codes);
    weight.scales = make_tensor("blk.w.scales", DType::kU8, 1, 1, scale);
    return error_of(weight);
  };
  EXPECT_EQ(error_with(0x01, 3), "");                                               // 2^-133
  EXPECT_THAT(error_with(0x01, 2), testing::HasSubstr("tensor blk.w: the value"));  // 2^-134
  EXPECT_EQ(error_with(0x7e, 246), "");                                             // 1.75 · 2^127
  EXPECT_THAT(error_with(0x7e, 247), testing::HasSubstr("the value inf in row 0"));
  EXPECT_THAT(error_with(0x7f, 127), testing::HasSubstr("the value nan in row 0"));
}

TEST(Pack, RefusesWhatItCannotHold) {
  using testing::HasSubstr;
  RawWeight weight = random_weight({"blk.0.w", DType::kQ4_0}, 4, 64, 1);
  weight.rows = 5;
  EXPECT_THAT(error_of(weight), HasSubstr("blk.0.w has 144 bytes, its shape needs 180"));
  weight.rows = 4;
  weight.cols = 63;
  EXPECT_THAT(error_of(weight), HasSubstr("rows of 63 values"));
  weight.cols = 64;
  weight.row_order = {0, 1, 2, 4};
  EXPECT_THAT(error_of(weight), HasSubstr("row order"));

  RawWeight affine = random_weight({"q", DType::kU32, 4, 64, DType::kBF16}, 4, 128, 1);
  affine.group = 48;
  EXPECT_THAT(error_of(affine), HasSubstr("groups of 48"));
  affine.group = 64;
  affine.bits = 7;
  EXPECT_THAT(error_of(affine), HasSubstr("7 bit"));
  affine.bits = 4;
  affine.biases.reset();
  EXPECT_THAT(error_of(affine), HasSubstr("biases"));

  RawWeight fp4 = random_weight({"q", DType::kU32, 4, 32, DType::kU8, QuantMode::kMxFp4}, 4, 64, 1);
  fp4.scales->bytes = fp4.scales->bytes.first(7);
  EXPECT_THAT(error_of(fp4), HasSubstr("q.scales has 7 bytes, its shape needs 8"));
  fp4.group = 16;
  EXPECT_THAT(error_of(fp4), HasSubstr("mxfp4 has 4 bits in groups of 32"));

  RawWeight integers = random_weight({"ids", DType::kF32}, 4, 64, 1);
  integers.data.dtype = DType::kI32;
  EXPECT_THAT(error_of(integers), HasSubstr("type I32, which is no weight type"));
}

}  // namespace
}  // namespace mantou::cpu
