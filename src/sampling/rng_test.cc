#include "sampling/rng.h"

#include <gtest/gtest.h>

#include <set>

#include "sampling/goldens_test_data.h"

namespace mantou {
namespace {

// Random123 1.14, examples/kat_vectors, lines "threefry2x32 20".
TEST(Threefry, MatchesRandom123) {
  EXPECT_EQ(threefry2x32({0, 0}, {0, 0}), (ThreefryPair{0x6b200159u, 0x99ba4efeu}));
  EXPECT_EQ(threefry2x32({0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu}),
            (ThreefryPair{0x1cb996fcu, 0xbb002be7u}));
  EXPECT_EQ(threefry2x32({0x13198a2eu, 0x03707344u}, {0x243f6a88u, 0x85a308d3u}),
            (ThreefryPair{0xc4923a9cu, 0x483df7a0u}));
}

// JAX documentation of jax.random.split: the halves of PRNGKey(0).
TEST(Keys, SplitMatchesJax) {
  const auto keys = split_key(make_key(0));
  EXPECT_EQ(keys[0], (ThreefryKey{4146024105u, 967050713u}));
  EXPECT_EQ(keys[1], (ThreefryKey{2718843009u, 1272950319u}));
}

TEST(Keys, MatchMlx) {
  for (const GoldenKey& golden : kGoldenKeys) {
    SCOPED_TRACE(golden.seed);
    const ThreefryKey key = step_key(golden.seed, golden.step);
    const auto halves = split_key(key);
    EXPECT_EQ(key, (ThreefryKey{golden.key[0], golden.key[1]}));
    EXPECT_EQ(halves[0], (ThreefryKey{golden.first[0], golden.first[1]}));
    EXPECT_EQ(halves[1], (ThreefryKey{golden.second[0], golden.second[1]}));
    const uint64_t words = uint64_t(golden.words[0]) << 32 | golden.words[1];
    EXPECT_EQ(uniform(key), double(words >> 11) / 9007199254740992.0);
  }
}

TEST(Uniform, IsEvenOverSteps) {
  constexpr int kDraws = 200000, kCells = 100;
  std::vector<int> cells(kCells);
  for (int step = 0; step < kDraws; ++step) {
    const double u = uniform(step_key(7, step));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++cells[size_t(u * kCells)];
  }
  double chi2 = 0;
  for (const int n : cells) chi2 += (n - 2000.0) * (n - 2000.0) / 2000.0;
  EXPECT_LT(chi2, 161);  // 99 degrees of freedom: p = 1e-4
  EXPECT_GT(chi2, 49);   // and not suspiciously even
}

TEST(Keys, DifferBySeedAndStep) {
  std::set<std::pair<uint32_t, uint32_t>> keys;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (int64_t step = 0; step < 100; ++step) {
      const ThreefryKey key = step_key(seed, step);
      keys.insert({key.first, key.second});
    }
  }
  EXPECT_EQ(keys.size(), 10000u);
}

}  // namespace
}  // namespace mantou
