// The operations that Gemma 4's small models add to a layer, against their formulas in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "backends/cpu/buffer_pool.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/test_raw_weight.h"

namespace mantou::cpu {
namespace {

constexpr int kHidden = 64, kWidth = 32, kLayers = 3, kVocab = 5;
using Values = std::vector<float>;
using Doubles = std::vector<double>;

Values normal(size_t count, float spread, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0, spread);
  Values values(count);
  for (float& v : values) v = distribution(random);
  return values;
}

const Values kX = normal(kVocab * kHidden, 1, 1);  // row t is the hidden state of token t
const Values kTable = normal(kVocab * kLayers * kWidth, 1, 2);
const Values kProjection = normal(kLayers * kWidth * kHidden, 0.2f, 3);
const Values kNorm = normal(kWidth, 1, 4);
const Values kGate = normal(kWidth * kHidden, 0.2f, 5), kBack = normal(kHidden * kWidth, 0.2f, 6);
const Values kPost = normal(kHidden, 1, 7);
constexpr double kTableScale = 2.5, kProjectionScale = 0.5, kScale = 0.75;

Doubles times(const Values& matrix, const Doubles& x) {
  Doubles y(matrix.size() / x.size(), 0.0);
  for (size_t r = 0; r < y.size(); ++r)
    for (size_t c = 0; c < x.size(); ++c) y[r] += double(matrix[r * x.size() + c]) * x[c];
  return y;
}

void norm(Doubles& x, size_t first, const Values& scale) {
  double squares = 0;
  for (size_t i = 0; i < scale.size(); ++i) squares += x[first + i] * x[first + i];
  const double root = std::sqrt(squares / double(scale.size()) + 1e-6);
  for (size_t i = 0; i < scale.size(); ++i) x[first + i] *= double(scale[i]) / root;
}

Doubles hidden_of(int token) {
  return {kX.begin() + token * kHidden, kX.begin() + (token + 1) * kHidden};
}

Doubles inputs_of(int token) {
  Doubles y = times(kProjection, hidden_of(token));
  for (double& v : y) v *= kProjectionScale;
  for (size_t layer = 0; layer < kLayers; ++layer) norm(y, layer * kWidth, kNorm);
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = (y[i] + double(kTable[size_t(token) * y.size() + i]) * kTableScale) * kScale;
  return y;
}

class LayerInputsTest : public testing::Test {
 protected:
  LayerInputsTest() {
    inputs_.width = kWidth;
    inputs_.table = backend_->pack(raw_f32(kTable, kVocab), WeightUse::kTable);
    inputs_.table_scale = kTableScale;
    inputs_.projection.weight =
        backend_->pack(raw_f32(kProjection, kLayers * kWidth), WeightUse::kMatrix);
    inputs_.projection_scale = kProjectionScale;
    inputs_.norm.scale = vector(kNorm);
    inputs_.scale = kScale;
    layout_.rows.push_back({0, 0, int(tokens_.size()), 0});
    layout_.total_tokens = int(tokens_.size());
    backend_->begin_step(layout_);
    const Weight table = backend_->pack(raw_f32(kX, kVocab), WeightUse::kTable);
    x_ = backend_->embed(table, tokens_, 1.0f);
  }
  ~LayerInputsTest() override { backend_->end_step(); }
  Weight vector(const Values& values) {
    return backend_->pack(raw_f32(values, 1), WeightUse::kVector);
  }

  const std::vector<int32_t> tokens_ = {3, 0, 4};
  StepLayout layout_;
  std::unique_ptr<Backend> backend_ = make_cpu_backend({.threads = 2, .compute_f32 = true});
  LayerInputs inputs_;
  Tensor x_;
};

TEST_F(LayerInputsTest, FollowsTheFormula) {
  const Tensor y = backend_->layer_inputs(x_, tokens_, inputs_);
  ASSERT_EQ(y.cols(), kLayers * kWidth);
  for (size_t t = 0; t < tokens_.size(); ++t) {
    const Doubles expected = inputs_of(tokens_[t]);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(row(y, int64_t(t))[i], expected[i], 2e-5) << t << " " << i;
  }
}

TEST_F(LayerInputsTest, ALayerTakesItsPart) {
  LayerInputSpec spec;
  spec.gate.weight = backend_->pack(raw_f32(kGate, kWidth), WeightUse::kMatrix);
  spec.projection.weight = backend_->pack(raw_f32(kBack, kHidden), WeightUse::kMatrix);
  spec.post.scale = vector(kPost);
  const Tensor inputs = backend_->layer_inputs(x_, tokens_, inputs_);
  for (int layer = 0; layer < kLayers; ++layer) {
    const Tensor y = backend_->add_layer_input(x_, spec, inputs, layer);
    for (size_t t = 0; t < tokens_.size(); ++t) {
      const Doubles x = hidden_of(tokens_[t]), part = inputs_of(tokens_[t]);
      Doubles gate = times(kGate, x);
      for (size_t i = 0; i < kWidth; ++i) {
        const double g = gate[i], inner = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
        gate[i] = 0.5 * g * (1 + std::tanh(inner)) * part[size_t(layer) * kWidth + i];
      }
      Doubles result = times(kBack, gate);
      norm(result, 0, kPost);
      for (size_t i = 0; i < kHidden; ++i)
        EXPECT_NEAR(row(y, int64_t(t))[i], x[i] + result[i], 5e-5) << layer << " " << t;
    }
  }
}

TEST_F(LayerInputsTest, JoinAndMultiply) {
  const Tensor doubled = backend_->join(x_, {std::nullopt, 1, false}, x_);
  const Tensor copy = backend_->join(x_, {}, {});
  const Tensor scaled = backend_->multiply(x_, vector({3.0f}));
  for (size_t t = 0; t < tokens_.size(); ++t)
    for (size_t i = 0; i < kHidden; ++i) {
      const float x = row(x_, int64_t(t))[i];
      EXPECT_EQ(row(doubled, int64_t(t))[i], 2 * x);
      EXPECT_EQ(row(copy, int64_t(t))[i], x);
      EXPECT_EQ(row(scaled, int64_t(t))[i], 3 * x);
    }
}

}  // namespace
}  // namespace mantou::cpu
