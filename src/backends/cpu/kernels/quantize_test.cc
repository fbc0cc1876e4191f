// Quantized activations: the definition in float64, equal bits on every instruction set, bad
// values.
#include "backends/cpu/kernels/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace mantou::cpu {
namespace {

std::vector<QuantizedBlock> quantized_row(const KernelTable& table, const std::vector<float>& x) {
  std::vector<QuantizedBlock> blocks(quantized_blocks(table, 1, int(x.size())));
  quantize_row(table, x.data(), int(x.size()), 0, 1, blocks.data());
  return blocks;
}

TEST(Quantize, RoundsToTheNearestStep) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(1000);
  for (float& value : x) value = normal(random);
  const auto blocks = quantized_row(*kernels_for(Isa::kScalar), x);
  ASSERT_EQ(blocks.size(), 32u);
  for (size_t g = 0; g * 32 < x.size(); ++g) {
    double amax = 0;
    for (size_t k = g * 32; k < std::min(x.size(), g * 32 + 32); ++k)
      amax = std::max(amax, std::fabs(double(x[k])));
    const QuantizedBlock& block = blocks[g];
    EXPECT_NEAR(block.scale, amax / 127, amax * 0x1p-30);
    int sum = 0, half = 0;
    for (size_t i = 0; i < 32; ++i) {
      const double exact = g * 32 + i < x.size() ? double(x[g * 32 + i]) / amax * 127 : 0;
      EXPECT_NEAR(block.q[i], exact, 0.5 + 1e-4);
      sum += block.q[i];
      if (i < 16) half += block.q[i];
    }
    EXPECT_EQ(block.negative_sum, -sum);
    EXPECT_EQ(block.negative_half_sums[0], -half);
    EXPECT_EQ(block.negative_half_sums[1], half - sum);
    EXPECT_EQ(block.scaled_sum, block.scale * float(sum));
  }
}

TEST(Quantize, EverySetGivesTheScalarBits) {
  const KernelTable& scalar = *kernels_for(Isa::kScalar);
  std::mt19937 random(2);
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    const KernelTable* table = kernels_for(isa);
    if (table == nullptr) continue;
    for (int trial = 0; trial < 3000; ++trial) {
      std::vector<float> x(1 + random() % 200);
      const int kind = int(random() % 4);
      for (float& value : x) {
        uint32_t bits = uint32_t(random());
        if (kind == 0) bits = (bits & 0x807fffffu) | (100 + random() % 60) << 23;  // finite
        if (kind == 1) bits &= 0x8fffffffu;                                        // tiny
        if (kind == 2 && random() % 8) bits = 0x3f800000u + (bits & 0xffff);  // ties and near 1
        std::memcpy(&value, &bits, 4);
      }
      const auto expected = quantized_row(scalar, x), actual = quantized_row(*table, x);
      ASSERT_EQ(
          std::memcmp(expected.data(), actual.data(), expected.size() * sizeof(QuantizedBlock)), 0)
          << table->name << " trial " << trial;
    }
  }
}

TEST(Quantize, BadValuesSpoilTheirGroupOnly) {
  for (Isa isa : {Isa::kScalar, Isa::kAvx2}) {
    const KernelTable* table = kernels_for(isa);
    if (table == nullptr) continue;
    for (float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
          std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
      std::vector<float> x(96, 1.0f);
      x[40] = bad;
      const auto blocks = quantized_row(*table, x);
      EXPECT_TRUE(std::isnan(blocks[1].scale) && std::isnan(blocks[1].scaled_sum));
      EXPECT_EQ(blocks[1].negative_sum, 0);
      EXPECT_EQ(blocks[0].q[0], 127);
      EXPECT_EQ(blocks[2].q[31], 127);
    }
  }
}

TEST(Quantize, TinyAndHugeGroupsStayFinite) {
  for (Isa isa : {Isa::kScalar, Isa::kAvx2}) {
    const KernelTable* table = kernels_for(isa);
    if (table == nullptr) continue;
    const auto tiny = quantized_row(*table, std::vector<float>(32, 1e-38f));
    EXPECT_EQ(tiny[0].scale, 0.0f);
    EXPECT_EQ(tiny[0].q[0], 0);
    const auto huge = quantized_row(*table, std::vector<float>(32, -3e38f));
    EXPECT_EQ(huge[0].q[0], -127);
    EXPECT_TRUE(std::isfinite(huge[0].scale));
  }
}

TEST(Quantize, PanelsHoldEachRowAndZeroPadding) {
  for (Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    const KernelTable* table = kernels_for(isa);
    if (table == nullptr) continue;
    for (int rows = 1; rows <= 40; ++rows) {
      const int cols = 3;
      std::vector<float> panels(panel_floats(*table, rows, cols), -1.0f);
      for (int m = rows - 1; m >= 0; --m) {  // any order
        const float row[] = {m * 10.0f + 1, m * 10.0f + 2, m * 10.0f + 3};
        panel_row(*table, row, cols, m, rows, panels.data());
      }
      size_t at = 0;
      for (int first = 0; first < rows; first += table->dense_panel) {
        const int size = panel_rows(rows - first, table->dense_panel);
        for (int k = 0; k < cols; ++k)
          for (int i = 0; i < size; ++i, ++at)
            ASSERT_EQ(panels[at], first + i < rows ? (first + i) * 10.0f + float(k) + 1 : 0.0f);
      }
      ASSERT_EQ(at, panels.size());
    }
  }
}

}  // namespace
}  // namespace mantou::cpu
