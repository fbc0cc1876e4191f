#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "base/raw_tensor.h"

namespace mantou {
namespace {

RawWeight weight_of(DType dtype, std::vector<std::byte>& bytes) {
  RawWeight weight;
  weight.data.dtype = dtype;
  weight.data.bytes = bytes;
  weight.rows = 1;
  weight.cols =
      int64_t(bytes.size()) / dtype_info(dtype).block_bytes * dtype_info(dtype).block_size;
  weight.data.shape = {weight.rows, weight.cols};
  return weight;
}

// Each f16 of the second of three blocks becomes infinite in turn. Exactly where decode_row then
// yields a value that is not finite, is_finite must say so: the format's own decoding is the
// reference.
TEST(IsFinite, AgreesWithTheDecodedValuesOfBlocks) {
  for (const DType dtype :
       {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ4_K,
        DType::kQ5_K, DType::kQ6_K, DType::kQ2_K, DType::kQ3_K, DType::kIQ4_NL, DType::kIQ4_XS}) {
    const size_t block = size_t(dtype_info(dtype).block_bytes);
    int infinite = 0;
    for (size_t at = 0; at + 2 <= block; at += 2) {
      std::vector<std::byte> bytes(3 * block, std::byte{0x11});
      const uint16_t infinity = 0x7c00;
      std::memcpy(bytes.data() + block + at, &infinity, 2);
      const RawWeight weight = weight_of(dtype, bytes);
      std::vector<float> values(size_t(weight.cols));
      decode_row(weight, 0, values);
      bool finite = true;
      for (const float v : values) finite &= std::isfinite(v);
      EXPECT_EQ(is_finite(weight), finite) << dtype_info(dtype).name << ", byte " << at;
      infinite += !finite;
    }
    EXPECT_GE(infinite, 1) << dtype_info(dtype).name;
  }
}

// Every exponent of an MXFP4 scale, with the largest code.
TEST(IsFinite, AgreesWithTheDecodedValuesOfMxfp4) {
  for (int exponent = 0; exponent < 256; ++exponent) {
    std::vector<std::byte> bytes(2 * 17, std::byte{0x77});
    bytes[17] = std::byte(exponent);
    const RawWeight weight = weight_of(DType::kMXFP4, bytes);
    std::vector<float> values(size_t(weight.cols));
    decode_row(weight, 0, values);
    EXPECT_EQ(is_finite(weight), std::isfinite(values.back())) << exponent;
  }
}

// Every scale and, where codes are bytes, every code, beside the largest one.
TEST(IsFinite, AgreesWithTheDecodedValuesOfFloatModes) {
  struct Case {
    QuantMode mode;
    int bits, group;
    std::byte largest, one;
  };
  for (const Case& c : {Case{QuantMode::kMxFp4, 4, 32, std::byte{0x77}, std::byte{127}},
                        Case{QuantMode::kNvFp4, 4, 16, std::byte{0x77}, std::byte{0x38}},
                        Case{QuantMode::kMxFp8, 8, 32, std::byte{0x7e}, std::byte{127}}}) {
    for (int i = 0; i < 512; ++i) {
      std::vector<std::byte> codes(size_t(c.group * c.bits / 8), c.largest), scale(1, c.one);
      if (i < 256)
        scale[0] = std::byte(i);
      else if (c.bits == 8)
        codes[3] = std::byte(i - 256);
      RawWeight weight = weight_of(DType::kU32, codes);
      weight.scales = weight_of(DType::kU8, scale).data;
      weight.mode = c.mode;
      weight.bits = c.bits;
      weight.cols = weight.group = c.group;
      std::vector<float> values(size_t(weight.cols));
      decode_row(weight, 0, values);
      bool finite = true;
      for (const float v : values) finite &= std::isfinite(v);
      EXPECT_EQ(is_finite(weight), finite) << int(c.mode) << ", " << i;
    }
  }
}

TEST(IsFinite, LooksAtElementsAndAffineScales) {
  std::vector<std::byte> bytes(64);
  EXPECT_TRUE(is_finite(weight_of(DType::kF32, bytes)));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + 60, &nan, 4);
  EXPECT_FALSE(is_finite(weight_of(DType::kF32, bytes)));
  EXPECT_TRUE(is_finite(weight_of(DType::kU32, bytes)));  // codes are any bits

  RawWeight affine = weight_of(DType::kU32, bytes);
  std::vector<std::byte> scales(8);
  affine.scales = affine.biases = weight_of(DType::kBF16, scales).data;
  EXPECT_TRUE(is_finite(affine));
  const uint16_t infinity = f32_to_bf16(std::numeric_limits<float>::infinity());
  std::memcpy(scales.data() + 6, &infinity, 2);
  EXPECT_FALSE(is_finite(affine));
}

}  // namespace
}  // namespace mantou
