// The choice of experts. Expected weights: the softmax computed in the test in double, as the
// published code of Mixtral (over the chosen) and Qwen2-MoE (over all) has it.
#include "backends/cpu/routing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace mantou::cpu {
namespace {

MoeSpec spec_of(size_t experts, int top_k) {
  MoeSpec spec;
  spec.experts.count = int(experts);
  spec.top_k = top_k;
  return spec;
}

TEST(Route, SoftmaxOverAllKeepsSharesAndRenormalizesOnRequest) {
  const std::vector<float> scores = {1, 3, 2, 0};
  const double total = std::exp(1.0) + std::exp(3.0) + std::exp(2.0) + 1;
  MoeSpec spec = spec_of(4, 2);
  auto work = route(scores, spec);
  ASSERT_EQ(work.size(), 4u);
  EXPECT_TRUE(work[0].empty() && work[3].empty());
  EXPECT_FLOAT_EQ(work[1].at(0).weight, float(std::exp(3.0) / total));
  EXPECT_FLOAT_EQ(work[2].at(0).weight, float(std::exp(2.0) / total));
  const float among_chosen = float(std::exp(3.0) / (std::exp(3.0) + std::exp(2.0)));
  spec.weights = MoeSpec::Weights::kOfAllRenormalized;
  EXPECT_FLOAT_EQ(route(scores, spec)[1].at(0).weight, among_chosen);
  spec.weights = MoeSpec::Weights::kOfChosen;
  EXPECT_FLOAT_EQ(route(scores, spec)[1].at(0).weight, among_chosen);
}

TEST(Route, TiesGoToTheLowerIndexAndNanLoses) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto work = route(std::vector<float>{nan, 5, 5, 5}, spec_of(4, 2));
  EXPECT_EQ(work[0].size() + work[3].size(), 0u);
  EXPECT_EQ(work[1].size() + work[2].size(), 2u);
}

TEST(Route, ATokenIsRoutedAloneAsInABatch) {
  constexpr size_t kExperts = 16, kTokens = 33;
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> scores(kExperts * kTokens);
  for (float& s : scores) s = normal(random);
  const MoeSpec spec = spec_of(kExperts, 4);
  const auto together = route(scores, spec);
  for (size_t t = 0; t < kTokens; t++) {
    const auto alone = route(std::span(scores).subspan(t * kExperts, kExperts), spec);
    int chosen = 0;
    for (size_t e = 0; e < kExperts; e++)
      for (const Assignment& a : together[e])
        if (a.token == int64_t(t)) {
          chosen++;
          ASSERT_EQ(alone[e].size(), 1u);
          EXPECT_EQ(alone[e][0].weight, a.weight);
        }
    EXPECT_EQ(chosen, 4);
  }
}

}  // namespace
}  // namespace mantou::cpu
