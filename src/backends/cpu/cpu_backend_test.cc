#include "backends/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <limits>

#include "backends/cpu/test_raw_weight.h"

namespace mantou::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The token that the head chooses when its output has these values.
int32_t arg_max_of(const std::vector<float>& logits) {
  constexpr int64_t kCols = 32;
  const auto backend = make_cpu_backend({.threads = 1});
  const std::vector<float> ones(kCols, 1.0f);
  std::vector<float> matrix(logits.size() * kCols, 0.0f);
  for (size_t i = 0; i < logits.size(); ++i) matrix[i * kCols] = logits[i];
  const RawWeight table = raw_f32(ones, 1), scale = raw_f32(ones, 1);
  Head head;
  head.norm.scale = backend->pack(scale, WeightUse::kVector);
  head.weight = backend->pack(raw_f32(matrix, int64_t(logits.size())), WeightUse::kMatrix);
  StepLayout layout;
  layout.rows.push_back({0, 0, 1, 0});
  layout.total_tokens = 1;
  backend->begin_step(layout);
  const std::vector<int32_t> tokens = {0};
  const Tensor hidden = backend->embed(backend->pack(table, WeightUse::kTable), tokens, 1.0f);
  const std::vector<HeadRequest> requests = {{0, HeadRequest::Want::kArgMax}};
  const int32_t best = backend->head(hidden, head, requests).at(0).arg_max;
  backend->end_step();
  return best;
}

TEST(CpuBackend, ArgMaxIsTheLargestLogit) {
  EXPECT_EQ(arg_max_of({1, 3, 2, 3}), 1);
  EXPECT_EQ(arg_max_of({-3, -1, -2}), 1);
  EXPECT_EQ(arg_max_of({-kInfinity, 1, 0}), 1);
}

TEST(CpuBackend, NoTokenIsChosenFromLogitsThatAreNotFinite) {
  EXPECT_EQ(arg_max_of({1, kNan, 2}), -1);
  EXPECT_EQ(arg_max_of({1, kInfinity, 2}), -1);
  EXPECT_EQ(arg_max_of({-kInfinity, -kInfinity}), -1);
}

}  // namespace
}  // namespace mantou::cpu
