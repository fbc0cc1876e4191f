#include "sampling/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace mantou {
namespace {

// Reference for both: libm in extended precision.
TEST(Math, ExponentialMatchesLongDouble) {
  for (double x = 0; x > -708; x -= 0.00731) {
    const long double expected = std::exp(static_cast<long double>(x));
    ASSERT_NEAR(double(exp_negative(x) / expected), 1.0, 1e-15) << x;
  }
  EXPECT_EQ(exp_negative(0), 1.0);
  EXPECT_EQ(exp_negative(-0.0), 1.0);
  EXPECT_EQ(exp_negative(-800), 0.0);
  EXPECT_EQ(exp_negative(-1e300), 0.0);
  EXPECT_EQ(exp_negative(-HUGE_VAL), 0.0);
  EXPECT_NEAR(exp_negative(-1e-17), 1.0, 1e-16);
}

TEST(Math, LogarithmMatchesLongDouble) {
  for (double x = 1e-300; x < 1e300; x *= 1.00731) {
    const long double expected = std::log(static_cast<long double>(x));
    const double scale = std::max(1.0, std::abs(double(expected)));
    ASSERT_NEAR(double((natural_log(x) - expected) / scale), 0.0, 1e-15) << x;
  }
  EXPECT_EQ(natural_log(1), 0.0);
}

TEST(Math, WeightsAndBlockSums) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 5);
  for (const size_t n : {1u, 7u, 8u, 63u, 64u, 65u, 200u, 4096u}) {
    std::vector<float> values(n);
    for (float& v : values) v = normal(random);
    if (n > 2) values[1] = -HUGE_VALF;
    std::vector<double> each(n), sums(block_count(n), -1.0);
    weights(values, 30, 0.7, each);
    const double total = block_weights(values, 30, 0.7, sums);
    long double expected_total = 0;
    for (size_t block = 0; block < sums.size(); ++block) {
      long double expected = 0;
      for (size_t i = block * kBlock; i < std::min(n, (block + 1) * kBlock); ++i) {
        const long double w = std::exp((static_cast<long double>(values[i]) - 30) * 0.7);
        ASSERT_NEAR(double(each[i]), double(w), double(w) * 1e-14);
        expected += w;
      }
      ASSERT_NEAR(sums[block], double(expected), double(expected) * 1e-14);
      expected_total += expected;
    }
    ASSERT_NEAR(total, double(expected_total), double(expected_total) * 1e-14);
  }
}

TEST(Math, BlockMaximaAndNan) {
  for (const size_t n : {1u, 9u, 64u, 130u}) {
    std::vector<float> values(n, -HUGE_VALF), maxima(block_count(n));
    EXPECT_TRUE(block_maxima(values, maxima));
    EXPECT_EQ(maxima.back(), -HUGE_VALF);
    for (size_t at = 0; at < n; ++at) {
      values[at] = 2.5f;
      EXPECT_TRUE(block_maxima(values, maxima));
      for (size_t block = 0; block < maxima.size(); ++block) {
        ASSERT_EQ(maxima[block], block == at / kBlock ? 2.5f : -HUGE_VALF);
      }
      values[at] = std::nanf("");
      ASSERT_FALSE(block_maxima(values, maxima)) << at << " of " << n;
      values[at] = -HUGE_VALF;
    }
  }
}

}  // namespace
}  // namespace mantou
