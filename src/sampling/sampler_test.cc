#include "sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "base/error.h"
#include "sampling/goldens_test_data.h"

namespace mantou {
namespace {

using testing::HasSubstr;

constexpr float kForbidden = -HUGE_VALF;

GeneratedToken sample(Sampler& sampler, std::vector<float> logits,
                      std::vector<TokenId> history = {}, int64_t step = 0,
                      std::vector<uint32_t> allowed = {}) {
  return sampler.sample(logits, history, step, allowed);
}

// What the processors make of a row.
std::vector<float> processed(const SamplingParams& params, std::vector<float> logits,
                             const std::vector<TokenId>& history) {
  Sampler(params, {}, {}, int(logits.size())).sample(logits, history, int64_t(history.size()));
  return logits;
}

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

TEST(Processors, MatchMlxLm) {
  ASSERT_EQ(kGoldenProcessors.size(), 18u);
  for (size_t i = 0; i < kGoldenProcessors.size(); ++i) {
    SCOPED_TRACE(i);
    const GoldenProcessor& golden = kGoldenProcessors[i];
    SamplingParams params = greedy();
    params.logit_bias = golden.bias;
    params.repetition_penalty = golden.repetition;
    params.repetition_context = golden.repetition_context;
    params.presence_penalty = golden.presence;
    params.presence_context = golden.presence_context;
    params.frequency_penalty = golden.frequency;
    params.frequency_context = golden.frequency_context;
    EXPECT_THAT(processed(params, kGoldenLogits[size_t(golden.row)], golden.history),
                testing::Pointwise(testing::FloatEq(), golden.logits));
  }
}

TEST(Processors, WindowsEndAtTheNewestToken) {
  SamplingParams params = greedy();
  params.presence_penalty = 1;
  params.presence_context = 2;
  EXPECT_EQ(processed(params, {0, 0, 0, 0}, {0, 1, 2}), (std::vector<float>{0, -1, -1, 0}));
  params.presence_context = 0;
  EXPECT_EQ(processed(params, {0, 0, 0, 0}, {0, 1, 2}), (std::vector<float>{-1, -1, -1, 0}));
  params.presence_context = 50;
  EXPECT_EQ(processed(params, {0, 0, 0, 0}, {2, 2}), (std::vector<float>{0, 0, -1, 0}));
  EXPECT_EQ(processed(params, {0, 0, 0, 0}, {}), (std::vector<float>{0, 0, 0, 0}));
  // Ids that no token of the vocabulary has, such as an image's placeholder.
  EXPECT_EQ(processed(params, {0, 0, 0, 0}, {-1, 4, 1}), (std::vector<float>{0, -1, 0, 0}));
}

TEST(Processors, TheSmallestPenaltiesLeaveLogitsFinite) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const double penalty : {1e-38, 1e-40, std::numeric_limits<double>::denorm_min()}) {
    SCOPED_TRACE(penalty);
    SamplingParams params = greedy();
    params.repetition_penalty = penalty;
    const std::vector<float> logits = processed(params, {9, 5, 0, -kInfinity}, {1, 2, 3});
    EXPECT_EQ(logits, (std::vector<float>{9, kLargest, 0, -kInfinity}));
    params.temperature = 1;
    Sampler sampler(params, {}, {}, 4);
    EXPECT_EQ(sample(sampler, {9, 5, 0, -3}, {1, 2, 3}).id, 1);
  }
  // What the model itself gave is not hidden.
  SamplingParams params = greedy();
  params.repetition_penalty = 0.5;
  Sampler sampler(params, {}, {}, 2);
  EXPECT_ANY_THROW(sample(sampler, {kInfinity, 1}, {0}));
}

TEST(Processors, NeutralPenaltiesAreOff) {
  SamplingParams params = greedy();
  params.repetition_penalty = 1;
  EXPECT_TRUE(Sampler(params, {}, {}, 8).is_plain_greedy());
  params.repetition_penalty = 1.1;
  EXPECT_FALSE(Sampler(params, {}, {}, 8).is_plain_greedy());
}

TEST(Sampler, GreedyTakesTheLowestIdOfEqualLogits) {
  Sampler sampler(greedy(), {}, {}, 100);
  std::vector<float> logits(100, 1.0f);
  EXPECT_EQ(sample(sampler, logits).id, 0);
  logits[70] = logits[80] = 2;
  EXPECT_EQ(sample(sampler, logits).id, 70);
  EXPECT_TRUE(sampler.is_plain_greedy());
}

TEST(Sampler, GreedyIgnoresFilters) {
  SamplingParams params = greedy();
  params.xtc_probability = 1;
  params.top_k = 2;
  Sampler sampler(params, {}, {}, 3);
  EXPECT_EQ(sample(sampler, {1, 3, 2}).id, 1);
  EXPECT_TRUE(sampler.is_plain_greedy());
}

TEST(Sampler, PlainGreedyIsWhatADeviceCanDo) {
  SamplingParams params = greedy();
  EXPECT_TRUE(Sampler(params, {}, {}, 8).is_plain_greedy());
  params.logprobs = true;
  EXPECT_FALSE(Sampler(params, {}, {}, 8).is_plain_greedy());
  params = greedy();
  params.logit_bias[3] = 1;
  EXPECT_FALSE(Sampler(params, {}, {}, 8).is_plain_greedy());
  EXPECT_FALSE(Sampler(SamplingParams{}, {}, {}, 8).is_plain_greedy());
  Limits limits;
  limits.min_tokens = 3;
  const std::vector<TokenId> ends = {2};
  Sampler sampler(greedy(), limits, ends, 8);
  EXPECT_FALSE(sampler.is_plain_greedy());
  EXPECT_FALSE(sampler.is_plain_greedy(2));
  EXPECT_TRUE(sampler.is_plain_greedy(3));
}

TEST(Sampler, MinTokensHoldsBackWhatEndsTheRow) {
  Limits limits;
  limits.min_tokens = 2;
  limits.stop_token_ids = {3};
  const std::vector<TokenId> ends = {1, 999};  // 999: not in this vocabulary
  const std::vector<float> logits = {0, 5, 1, 4};
  Sampler sampler(greedy(), limits, ends, 4);
  EXPECT_EQ(sample(sampler, logits, {}, 0).id, 2);
  EXPECT_EQ(sample(sampler, logits, {}, 1).id, 2);
  EXPECT_EQ(sample(sampler, logits, {}, 2).id, 1);
  limits.ignore_eos = true;  // end ids are ordinary tokens then
  Sampler ignoring(greedy(), limits, ends, 4);
  EXPECT_EQ(sample(ignoring, logits, {}, 0).id, 1);
  Sampler ignoring_stop(greedy(), limits, {}, 4);
  EXPECT_EQ(sample(ignoring_stop, {0, 2, 1, 4}, {}, 0).id, 1);
}

TEST(Sampler, GrammarMaskForbids) {
  Sampler sampler(greedy(), {}, {}, 70);
  std::vector<float> logits(70);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = float(i);
  EXPECT_EQ(sample(sampler, logits, {}, 0, {0, 1u << 5, ~0u}).id, 69);
  EXPECT_EQ(sample(sampler, logits, {}, 0, {1u << 31, 1u << 5, 0}).id, 37);
  EXPECT_EQ(sample(sampler, logits, {}, 0, {1u << 31, 0, 0}).id, 31);
  EXPECT_EQ(sample(sampler, logits, {}, 0, {~0u, ~0u}).id,
            63);  // a shorter mask ends the vocabulary
  try {
    sample(sampler, logits, {}, 0, {0, 0, 0});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.message(), HasSubstr("grammar"));
  }
  EXPECT_EQ(sample(sampler, logits).id, 69);  // usable after the error
}

TEST(Sampler, RowsWithoutAnyTokenAreErrors) {
  Sampler plain(SamplingParams{}, {}, {}, 2);
  try {
    sample(plain, {kForbidden, kForbidden});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNumerical);
  }
  SamplingParams params;
  params.logit_bias = {{0, kForbidden}};
  Sampler biased(params, {}, {}, 2);
  EXPECT_EQ(sample(biased, {9, 1}).id, 1);
  EXPECT_THROW(sample(biased, {9, kForbidden}), Error);
}

TEST(Sampler, LogprobsAreOfTheProcessedRowBeforeFilters) {
  SamplingParams params;
  params.temperature = 0.1;
  params.top_k = 1;
  params.top_logprobs = 3;
  params.logit_bias = {{2, 10.0f}, {4, kForbidden}};
  Sampler sampler(params, {}, {}, 5);
  const GeneratedToken token = sample(sampler, {1, 2, -5, 2, 9});
  // softmax of {1, 2, 5, 2, -inf}
  const double lse = std::log(std::exp(1.0) + 2 * std::exp(2.0) + std::exp(5.0));
  EXPECT_EQ(token.id, 2);
  EXPECT_NEAR(token.logprob, 5 - lse, 1e-6);
  ASSERT_EQ(token.top.size(), 3u);
  EXPECT_EQ(token.top[0].id, 2);
  EXPECT_EQ(token.top[1].id, 1);
  EXPECT_EQ(token.top[2].id, 3);
  EXPECT_NEAR(token.top[0].logprob, 5 - lse, 1e-6);
  EXPECT_NEAR(token.top[2].logprob, 2 - lse, 1e-6);
}

TEST(Sampler, SeedsReproduceAndStepsDiffer) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> logits(1000);
  for (float& v : logits) v = normal(random);
  SamplingParams params;
  params.temperature = 1;
  params.seed = 99;
  Sampler a(params, {}, {}, 1000), b(params, {}, {}, 1000);
  params.seed = 100;
  Sampler other(params, {}, {}, 1000);
  std::vector<TokenId> first, backwards, different;
  for (int step = 0; step < 50; ++step) {
    first.push_back(sample(a, logits, {}, step).id);
    different.push_back(sample(other, logits, {}, step).id);
  }
  for (int step = 49; step >= 0; --step) backwards.push_back(sample(b, logits, {}, step).id);
  std::reverse(backwards.begin(), backwards.end());
  EXPECT_EQ(first, backwards);
  EXPECT_NE(first, different);
  EXPECT_GT(std::set<TokenId>(first.begin(), first.end()).size(), 40u);
}

// Draws follow weight^(1/T) among what the filters leave: chi-square over 40,000 steps.
TEST(Sampler, FrequenciesFollowTheDistribution) {
  const std::vector<float> logits = {0, 1, 2, -1, 0.5f, 2.5f, -3, kForbidden, 1.5f, 0};
  for (const double temperature : {0.5, 1.0, 2.0}) {
    SamplingParams params;
    params.temperature = temperature;
    params.top_k = 8;  // drops -3
    params.seed = 12345;
    Sampler sampler(params, {}, {}, int(logits.size()));
    constexpr int kSteps = 40000;
    std::vector<double> expected(logits.size());
    std::vector<int> counts(logits.size());
    double sum = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      expected[i] = logits[i] < -2 ? 0 : std::exp(logits[i] / temperature);
      sum += expected[i];
    }
    for (int step = 0; step < kSteps; ++step) {
      ++counts[size_t(sample(sampler, logits, {}, step).id)];
    }
    double chi2 = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const double n = expected[i] / sum * kSteps;
      if (n == 0) {
        EXPECT_EQ(counts[i], 0);
      } else {
        chi2 += (counts[i] - n) * (counts[i] - n) / n;
      }
    }
    EXPECT_LT(chi2, 29.9);  // 7 degrees of freedom: p = 1e-4
  }
}

TEST(Sampler, XtcTakesTheFirstHalfOfTheKey) {
  const std::vector<float> logits(64, 0.0f);
  SamplingParams params;
  params.temperature = 1;
  params.seed = 3;
  params.xtc_probability = 1e-12;  // on, yet never applied
  params.xtc_threshold = 0.1;
  Sampler sampler(params, {}, {}, 64);
  for (int step = 0; step < 30; ++step) {
    const double u = uniform(split_key(step_key(3, step))[1]);
    EXPECT_EQ(sample(sampler, logits, {}, step).id, TokenId(u * 64));
  }
}

TEST(Sampler, XtcNeverRemovesEndIds) {
  SamplingParams params;
  params.xtc_probability = 1;
  params.xtc_threshold = 0.1;
  params.temperature = 1e-3;
  const std::vector<TokenId> ends = {1};
  Sampler with_end(params, {}, ends, 4), without(params, {}, {}, 4);
  EXPECT_EQ(sample(with_end, {2, 4, 3, 0}).id, 1);
  EXPECT_EQ(sample(without, {2, 4, 3, 0}).id, 2);  // 1 and 2 are above the threshold
}

struct BadSetting {
  const char* field;
  void (*set)(SamplingParams&, Limits&);
};

TEST(Validate, NamesTheField) {
  const std::vector<BadSetting> settings = {
      {"temperature", [](auto& p, auto&) { p.temperature = -0.1; }},
      {"temperature", [](auto& p, auto&) { p.temperature = NAN; }},
      {"temperature", [](auto& p, auto&) { p.temperature = HUGE_VAL; }},
      {"top_p", [](auto& p, auto&) { p.top_p = 1.01; }},
      {"top_p", [](auto& p, auto&) { p.top_p = NAN; }},
      {"top_k", [](auto& p, auto&) { p.top_k = -1; }},
      {"min_p", [](auto& p, auto&) { p.min_p = -0.1; }},
      {"min_p", [](auto& p, auto&) { p.min_p = NAN; }},
      {"min_tokens_to_keep", [](auto& p, auto&) { p.min_tokens_to_keep = 0; }},
      {"xtc_probability", [](auto& p, auto&) { p.xtc_probability = 1.5; }},
      {"xtc_threshold", [](auto& p, auto&) { p.xtc_threshold = 0.51; }},
      {"repetition_penalty", [](auto& p, auto&) { p.repetition_penalty = -1; }},
      {"repetition_context_size", [](auto& p, auto&) { p.repetition_context = -1; }},
      {"presence_penalty", [](auto& p, auto&) { p.presence_penalty = NAN; }},
      {"presence_context_size", [](auto& p, auto&) { p.presence_context = -1; }},
      {"frequency_penalty", [](auto& p, auto&) { p.frequency_penalty = HUGE_VAL; }},
      {"frequency_context_size", [](auto& p, auto&) { p.frequency_context = -1; }},
      {"logit_bias", [](auto& p, auto&) { p.logit_bias[1] = NAN; }},
      {"logit_bias", [](auto& p, auto&) { p.logit_bias[1] = HUGE_VALF; }},
      {"top_logprobs", [](auto& p, auto&) { p.top_logprobs = 21; }},
      {"top_logprobs", [](auto& p, auto&) { p.top_logprobs = -1; }},
      {"min_tokens", [](auto&, auto& l) { l.min_tokens = -1; }},
  };
  for (const BadSetting& bad : settings) {
    SamplingParams params;
    Limits limits;
    EXPECT_NO_THROW(validate(params, limits));
    bad.set(params, limits);
    try {
      validate(params, limits);
      ADD_FAILURE() << bad.field;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(error.param(), bad.field);
      EXPECT_THAT(error.message(), HasSubstr(bad.field));
    }
    EXPECT_THROW(Sampler(params, limits, {}, 8), Error);
  }
}

TEST(Validate, SaysTheRange) {
  SamplingParams params;
  params.top_p = 2;
  try {
    validate(params);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "top_p must be from 0 to 1, not 2");
  }
}

TEST(Validate, IdsMustBeInTheVocabulary) {
  SamplingParams params;
  Limits limits;
  params.logit_bias = {{8, 1.0f}};
  EXPECT_THROW(Sampler(params, limits, {}, 8), Error);
  EXPECT_NO_THROW(Sampler(params, limits, {}, 9));
  params.logit_bias = {{-1, 1.0f}};
  EXPECT_THROW(Sampler(params, limits, {}, 8), Error);
  params.logit_bias.clear();
  params.xtc_special = {8};
  EXPECT_THROW(Sampler(params, limits, {}, 8), Error);
  params.xtc_special.clear();
  limits.stop_token_ids = {8};
  EXPECT_THROW(Sampler(params, limits, {}, 8), Error);
}

}  // namespace
}  // namespace mantou
