// The mixture of experts of the cpu backend against the published formula in float64, and that a
// token's result is its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "backends/cpu/buffer_pool.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/test_raw_weight.h"

namespace mantou::cpu {
namespace {

constexpr int kHidden = 64, kWidth = 96, kExperts = 6, kTopK = 2, kTokens = 9;
using Values = std::vector<float>;

struct ExpertValues {
  Values gate, up, down;
};

struct Mixture {
  std::mt19937 random{11};
  Values x = normal(kTokens * kHidden, 1), scale = normal(kHidden, 1);
  Values router = normal(kExperts * kHidden, 0.5f), shared_gate = normal(kHidden, 0.3f);
  std::vector<ExpertValues> experts = make_experts();
  ExpertValues shared = make_expert();
  bool renormalize = false, with_shared = false;

  Values normal(size_t count, float spread) {
    std::normal_distribution<float> distribution(0, spread);
    Values values(count);
    for (float& v : values) v = distribution(random);
    return values;
  }
  ExpertValues make_expert() {
    return {normal(kWidth * kHidden, 0.1f), normal(kWidth * kHidden, 0.1f),
            normal(kHidden * kWidth, 0.1f)};
  }
  std::vector<ExpertValues> make_experts() {
    std::vector<ExpertValues> all;
    for (int e = 0; e < kExperts; ++e) all.push_back(make_expert());
    return all;
  }
};

Mlp pack_expert(Backend& backend, const ExpertValues& e) {
  const auto linear = [&](const Values& values, int64_t rows) {
    return Linear{backend.pack(raw_f32(values, rows), WeightUse::kMatrix), std::nullopt};
  };
  return {linear(e.gate, kWidth), linear(e.up, kWidth), linear(e.down, kHidden), Activation::kSilu};
}

Weight pack_stack(Backend& backend, const Mixture& m, Values ExpertValues::* part, int64_t rows) {
  std::vector<RawWeight> raw;
  for (const ExpertValues& e : m.experts) raw.push_back(raw_f32(e.*part, rows));
  return backend.pack_experts(raw);
}

MoeSpec spec_of(Backend& backend, const Mixture& m) {
  MoeSpec spec;
  spec.pre = Norm{};
  spec.pre->scale = backend.pack(raw_f32(m.scale, 1), WeightUse::kVector);
  spec.router = {backend.pack(raw_f32(m.router, kExperts), WeightUse::kRouter), std::nullopt};
  spec.top_k = kTopK;
  if (m.renormalize) spec.weights = MoeSpec::Weights::kOfAllRenormalized;
  spec.experts.count = kExperts;
  spec.experts.gate.weight = pack_stack(backend, m, &ExpertValues::gate, kWidth);
  spec.experts.up.weight = pack_stack(backend, m, &ExpertValues::up, kWidth);
  spec.experts.down.weight = pack_stack(backend, m, &ExpertValues::down, kHidden);
  if (!m.with_shared) return spec;
  spec.shared = pack_expert(backend, m.shared);
  spec.shared_gate =
      Linear{backend.pack(raw_f32(m.shared_gate, 1), WeightUse::kRouter), std::nullopt};
  return spec;
}

// Results of the tokens `first` … of the mixture's input, run as one step.
Values run(const Mixture& m, int first, int count, int threads = 1) {
  const auto backend = make_cpu_backend({.threads = threads});
  const MoeSpec spec = spec_of(*backend, m);
  const Weight table = backend->pack(raw_f32(m.x, kTokens), WeightUse::kTable);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  StepLayout layout;
  layout.rows.push_back({0, 0, count, 0});
  layout.total_tokens = count;
  backend->begin_step(layout);
  const Tensor x = backend->embed(table, tokens, 1.0f);
  const Tensor y = backend->moe(x, spec, x);
  Values out(size_t(count) * kHidden);
  for (int t = 0; t < count; ++t)
    std::copy_n(row(y, t), kHidden, out.begin() + ptrdiff_t{t} * kHidden);
  backend->end_step();
  return out;
}

std::vector<double> times(const Values& matrix, const std::vector<double>& x) {
  std::vector<double> y(matrix.size() / x.size(), 0.0);
  for (size_t r = 0; r < y.size(); ++r)
    for (size_t c = 0; c < x.size(); ++c) y[r] += double(matrix[r * x.size() + c]) * x[c];
  return y;
}

std::vector<double> expert_of(const ExpertValues& e, const std::vector<double>& x) {
  std::vector<double> gate = times(e.gate, x);
  const std::vector<double> up = times(e.up, x);
  for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
  return times(e.down, gate);
}

std::vector<double> reference(const Mixture& m, int token) {
  const float* const x = m.x.data() + token * kHidden;
  double squares = 0;
  for (int i = 0; i < kHidden; ++i) squares += double(x[i]) * x[i];
  std::vector<double> n(kHidden), y(x, x + kHidden);
  for (int i = 0; i < kHidden; ++i)
    n[size_t(i)] = x[i] / std::sqrt(squares / kHidden + 1e-6) * m.scale[size_t(i)];
  const auto add = [&](const std::vector<double>& result, double weight) {
    for (size_t i = 0; i < y.size(); ++i) y[i] += weight * result[i];
  };
  std::vector<double> share = times(m.router, n);
  std::vector<int> order(kExperts);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return share[size_t(a)] > share[size_t(b)]; });
  double all = 0, chosen = 0;
  for (double& s : share) all += s = std::exp(s);
  for (int i = 0; i < kTopK; ++i) chosen += share[size_t(order[size_t(i)])];
  for (int i = 0; i < kTopK; ++i) {
    const size_t e = size_t(order[size_t(i)]);
    add(expert_of(m.experts[e], n), share[e] / (m.renormalize ? chosen : all));
  }
  if (m.with_shared)
    add(expert_of(m.shared, n), 1 / (1 + std::exp(-times(m.shared_gate, n).front())));
  return y;
}

class MoeTest : public testing::TestWithParam<int> {
 protected:
  MoeTest() {
    mixture_.renormalize = (GetParam() & 1) != 0;
    mixture_.with_shared = (GetParam() & 2) != 0;
  }
  Mixture mixture_;
};

TEST_P(MoeTest, FollowsTheFormula) {
  const Values y = run(mixture_, 0, kTokens);
  for (int t = 0; t < kTokens; ++t) {
    const std::vector<double> expected = reference(mixture_, t);
    for (int i = 0; i < kHidden; ++i)
      EXPECT_NEAR(y[size_t(t * kHidden + i)], expected[size_t(i)], 2e-5) << t << " " << i;
  }
}

TEST_P(MoeTest, ATokenAloneHasTheBitsItHasInABatch) {
  const Values together = run(mixture_, 0, kTokens, 2);
  for (int t = 0; t < kTokens; ++t) {
    const Values alone = run(mixture_, t, 1);
    EXPECT_EQ(std::memcmp(alone.data(), together.data() + t * kHidden, kHidden * sizeof(float)), 0)
        << t;
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, MoeTest, testing::Range(0, 4));

}  // namespace
}  // namespace mantou::cpu
