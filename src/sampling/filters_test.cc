// Candidates and filters against mlx-lm (goldens) and against a reference that sorts everything in
// long double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "base/error.h"
#include "sampling/goldens_test_data.h"
#include "sampling/sampler.h"
#include "sampling/select.h"

namespace mantou {
namespace {

using testing::ElementsAre;

// Every candidate, read through draws from an even distribution.
std::vector<TokenId> survivors(Candidates& candidates) {
  const size_t n = candidates.count_from(-1e300);
  std::vector<TokenId> ids;
  for (size_t i = 0; i < n; ++i)
    ids.push_back(candidates.draw((double(i) + 0.5) / double(n), 1e30));
  return ids;
}

std::unique_ptr<Filter> make_filter(std::string_view name, const SamplingParams& params,
                                    int vocab_size) {
  const Limits limits;
  for (const FilterEntry* entry : filter_table()) {
    if (entry->name == name) return entry->make({params, limits, {}, vocab_size});
  }
  throw std::logic_error("no such filter");
}

std::vector<TokenId> filtered(std::string_view name, const SamplingParams& params,
                              const std::vector<float>& logits) {
  Candidates candidates(logits.size());
  candidates.reset(logits);
  if (auto filter = make_filter(name, params, int(logits.size()))) filter->apply(candidates, {});
  return survivors(candidates);
}

TEST(Filters, MatchMlxLm) {
  ASSERT_GT(kGoldenFilters.size(), 40u);
  for (const GoldenFilter& golden : kGoldenFilters) {
    SCOPED_TRACE(testing::Message() << golden.filter << ' ' << golden.value << " keep "
                                    << golden.keep << " row " << golden.row);
    SamplingParams params;
    params.top_p = params.min_p = params.xtc_threshold = golden.value;
    params.top_k = int(golden.value);
    params.min_tokens_to_keep = golden.keep;
    params.xtc_probability = 1;
    params.xtc_special = {40};
    EXPECT_EQ(filtered(golden.filter, params, kGoldenLogits[size_t(golden.row)]), golden.kept);
  }
}

// ---- a second implementation, slow and plain ----

struct Reference {
  std::vector<float> logits;
  std::vector<bool> kept;

  std::vector<size_t> order() const {  // kept ones, largest first, lower id first
    std::vector<size_t> ids;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (kept[i]) ids.push_back(i);
    }
    std::sort(ids.begin(), ids.end(), [&](size_t a, size_t b) {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    });
    return ids;
  }
  std::vector<long double> probabilities() const {
    const float max = logits[order()[0]];
    std::vector<long double> p(logits.size());
    long double sum = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      p[i] = kept[i] ? std::exp(static_cast<long double>(logits[i]) - max) : 0;
      sum += p[i];
    }
    for (auto& value : p) value /= sum;
    return p;
  }
  void top_p(double share) {
    const auto p = probabilities();
    long double above = 0;
    float last = 0;
    for (const size_t id : order()) {
      if (above >= share) break;
      last = logits[id];
      above += p[id];
    }
    for (size_t i = 0; i < kept.size(); ++i) kept[i] = kept[i] && logits[i] >= last;
  }
  void min_p(double share, size_t keep) {
    const auto ids = order();
    const auto p = probabilities();
    for (size_t n = keep; n < ids.size(); ++n) {
      if (p[ids[n]] < share * p[ids[0]]) kept[ids[n]] = false;
    }
  }
  void xtc(double threshold, const std::vector<TokenId>& special) {
    const auto p = probabilities();
    long double least = 2;
    for (const auto value : p) least = value > threshold ? std::min(least, value) : least;
    for (size_t i = 0; i < p.size(); ++i) {
      const bool is_special = std::count(special.begin(), special.end(), TokenId(i)) > 0;
      if (p[i] > least && !is_special) kept[i] = false;
    }
  }
  void top_k(size_t k) {
    const auto ids = order();
    for (size_t n = k; n < ids.size(); ++n) kept[ids[n]] = false;
  }
};

Reference reference(const std::vector<float>& logits) {
  Reference r{logits, std::vector<bool>(logits.size())};
  for (size_t i = 0; i < logits.size(); ++i) r.kept[i] = logits[i] > -HUGE_VALF;
  return r;
}

std::vector<TokenId> ids_of(const Reference& r) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < r.kept.size(); ++i) {
    if (r.kept[i]) ids.push_back(TokenId(i));
  }
  return ids;
}

// Rows of different character: spread, tied, peaked, nearly flat, mostly forbidden.
std::vector<float> random_row(std::mt19937& random, size_t n) {
  std::normal_distribution<float> normal(0, 1);
  const int kind = int(random() % 5);
  const float scale[] = {3, 2, 1, 1e-3f, 4};
  std::vector<float> row(n);
  for (float& v : row) v = normal(random) * scale[kind];
  for (float& v : row) {
    if (kind == 1) v = std::round(v);
    if (kind == 4 && random() % 8 != 0) v = -HUGE_VALF;
  }
  row[random() % n] = kind == 2 ? 12.0f : 1.0f;
  return row;
}

TEST(Filters, ChainMatchesReference) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> unit(0, 1);
  for (int round = 0; round < 1500; ++round) {
    const size_t n = round < 1400 ? 1 + random() % 400 : 3000 + random() % 9000;
    const auto row = random_row(random, n);
    SamplingParams params;
    if (random() % 2) params.top_p = unit(random);
    if (random() % 2) params.min_p = std::pow(unit(random), 3);
    params.min_tokens_to_keep = random() % 3 ? 1 : int(1 + random() % 20);
    if (random() % 2) params.top_k = int(1 + random() % (random() % 2 ? 20 : n));
    params.xtc_probability = random() % 2;
    params.xtc_threshold = unit(random) * (random() % 2 ? 0.5 : 0.01);
    params.xtc_special = {TokenId(random() % n)};
    SCOPED_TRACE(testing::Message() << "round " << round << " n " << n << " top_p " << params.top_p
                                    << " min_p " << params.min_p << " top_k " << params.top_k);

    Candidates candidates(n);
    candidates.reset(row);
    Reference expected = reference(row);
    for (const FilterEntry* entry : filter_table()) {
      if (auto filter = make_filter(entry->name, params, int(n))) filter->apply(candidates, {});
    }
    if (params.top_p > 0) expected.top_p(params.top_p);
    if (params.min_p > 0) expected.min_p(params.min_p, size_t(params.min_tokens_to_keep));
    if (params.xtc_probability > 0) expected.xtc(params.xtc_threshold, params.xtc_special);
    if (params.top_k > 0) expected.top_k(size_t(params.top_k));
    ASSERT_EQ(survivors(candidates), ids_of(expected));
  }
}

TEST(Filters, Edges) {
  const std::vector<float> row = {1, 3, 2, 3, -HUGE_VALF, 0};
  SamplingParams params;
  params.top_p = 0;
  EXPECT_THAT(filtered("top_p", params, row), ElementsAre(0, 1, 2, 3, 5));
  params.top_p = 1;
  EXPECT_THAT(filtered("top_p", params, row), ElementsAre(0, 1, 2, 3, 5));
  params.top_p = 1e-300;  // always the best token, and what equals it
  EXPECT_THAT(filtered("top_p", params, row), ElementsAre(1, 3));
  params.top_p = std::nextafter(1.0, 0.0);
  EXPECT_THAT(filtered("top_p", params, row), ElementsAre(0, 1, 2, 3, 5));
  params.top_k = 1;
  EXPECT_THAT(filtered("top_k", params, row), ElementsAre(1));
  params.top_k = 5;  // as many as have weight
  EXPECT_THAT(filtered("top_k", params, row), ElementsAre(0, 1, 2, 3, 5));
  params.top_k = 1000;
  EXPECT_THAT(filtered("top_k", params, row), ElementsAre(0, 1, 2, 3, 5));
  params.min_p = 1;
  EXPECT_THAT(filtered("min_p", params, row), ElementsAre(1, 3));
  params.min_p = 1e-310;
  EXPECT_THAT(filtered("min_p", params, row), ElementsAre(0, 1, 2, 3, 5));
  params.min_p = 1;
  params.min_tokens_to_keep = 100;
  EXPECT_THAT(filtered("min_p", params, row), ElementsAre(0, 1, 2, 3, 5));
  EXPECT_THAT(filtered("top_k", params, {5}), ElementsAre(0));
}

TEST(Filters, EqualLogits) {
  const std::vector<float> row(5000, 0.25f);
  std::vector<TokenId> all(row.size());
  std::iota(all.begin(), all.end(), 0);
  SamplingParams params;
  params.top_p = 0.5;
  EXPECT_EQ(filtered("top_p", params, row), all);
  params.top_k = 700;
  EXPECT_EQ(filtered("top_k", params, row), std::vector<TokenId>(all.begin(), all.begin() + 700));
}

TEST(Xtc, DrawsWithItsProbability) {
  const std::vector<float> row = {2, 2.5, 0, 0};  // both above 0.1; the better one goes
  SamplingParams params;
  params.xtc_probability = 0.3;
  params.xtc_threshold = 0.2;
  auto filter = make_filter("xtc", params, 4);
  int applied = 0;
  constexpr int kSteps = 20000;
  for (int step = 0; step < kSteps; ++step) {
    Candidates candidates(4);
    candidates.reset(row);
    filter->apply(candidates, {step, {}, {}, step_key(5, step)});
    applied += candidates.size() == 3;
  }
  EXPECT_NEAR(applied, 0.3 * kSteps, 4 * std::sqrt(0.21 * kSteps));
}

TEST(Select, MatchesSorting) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const size_t n = 1 + random() % (round < 250 ? 800 : 20000);
    std::vector<float> values = random_row(random, n);
    for (float& v : values) v = std::max(v, -50.0f);
    std::vector<float> sorted = values;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const size_t k = 1 + random() % n;
    std::vector<float> scratch = values;
    EXPECT_EQ(select_lowest(scratch, double(k), Weighing::kCount, sorted[0]), sorted[k - 1]);
    scratch = values;
    EXPECT_EQ(select_lowest(scratch, 1e9, Weighing::kCount, sorted[0]), sorted.back());
  }
}

TEST(Candidates, LargestAreOrderedAndStable) {
  std::mt19937 random(6);
  for (int round = 0; round < 200; ++round) {
    const size_t n = 1 + random() % 500;
    const auto row = random_row(random, n);
    const auto order = reference(row).order();
    Candidates candidates(n);
    candidates.reset(row);
    EXPECT_EQ(size_t(candidates.best()), order[0]);
    std::vector<TokenLogprob> top;
    candidates.largest(20, top);
    ASSERT_EQ(top.size(), std::min<size_t>(20, order.size()));
    for (size_t i = 0; i < top.size(); ++i) ASSERT_EQ(size_t(top[i].id), order[i]);
  }
}

TEST(Candidates, DrawInvertsTheDistributionFunction) {
  std::mt19937 random(8);
  std::uniform_real_distribution<double> unit(0, 1);
  for (int round = 0; round < 400; ++round) {
    const size_t n = 1 + random() % 1000;
    const auto row = random_row(random, n);
    const double temperature = std::exp(unit(random) * 6 - 3);
    Candidates candidates(n);
    candidates.reset(row);
    const float max = *std::max_element(row.begin(), row.end());
    std::vector<long double> below(n + 1);
    for (size_t i = 0; i < n; ++i) {
      below[i + 1] = below[i] + std::exp((static_cast<long double>(row[i]) - max) / temperature);
    }
    for (int draw = 0; draw < 20; ++draw) {
      const double u = unit(random);
      const size_t id = size_t(candidates.draw(u, temperature));
      ASSERT_LE(below[id] / below[n], u + 1e-12);
      ASSERT_GE(below[id + 1] / below[n], u - 1e-12);
      ASSERT_GT(row[id], -HUGE_VALF);
    }
  }
}

TEST(Candidates, DrawAtTheEnds) {
  const std::vector<float> row = {-HUGE_VALF, 0, 1, -HUGE_VALF, 2, -HUGE_VALF};
  Candidates candidates(row.size());
  candidates.reset(row);
  EXPECT_EQ(candidates.draw(0, 1), 1);
  EXPECT_EQ(candidates.draw(std::nextafter(1.0, 0.0), 1), 4);
  EXPECT_EQ(candidates.draw(0.5, 1e-320), 4);  // 1 / temperature overflows
  EXPECT_EQ(candidates.draw(0.0, 1e-320), 4);
}

TEST(Candidates, RefusesWhatIsNoNumber) {
  std::vector<float> row(300, 0.0f);
  Candidates candidates(row.size());
  row[201] = std::nanf("");
  try {
    candidates.reset(row);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNumerical);
    EXPECT_THAT(error.message(), testing::HasSubstr("NaN at token 201 of 300"));
  }
  row[201] = HUGE_VALF;
  EXPECT_THROW(candidates.reset(row), Error);
  EXPECT_THROW(candidates.reset({row.data(), 299}), Error);
  row[201] = 4;
  candidates.reset(row);
  EXPECT_EQ(candidates.best(), 201);
}

}  // namespace
}  // namespace mantou
