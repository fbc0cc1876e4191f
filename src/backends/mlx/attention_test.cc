// Attention over layer states against float64 over lists of tokens: every codec with every kind of
// layer and every feature of AttentionSpec, one row and several of different lengths.
#include "backends/mlx/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "backends/mlx/layer_state.h"

namespace mantou::on_mlx {
namespace {

constexpr int kHeads = 4, kKvHeads = 2, kDim = 64;

struct Case {
  KvQuant quant;
  int64_t window = 0;
  bool softcap = false, sinks = false, wide = false;
  std::vector<int> lengths;  // of the rows before the step
  int count = 1;             // tokens of the step
};

// [1, heads, n, kDim]
array normal(std::mt19937& random, int heads, int n) {
  std::normal_distribution<float> next(0, 1);
  std::vector<float> values(size_t(heads * n * kDim));
  for (float& x : values) x = next(random);
  return array(values.data(), {1, heads, n, kDim}, mx::float32);
}

// What a codec keeps of [1, heads, n, kDim], decoded again.
array kept(const array& x, const KvQuant& quant) {
  if (quant.bits == 0) return x;
  const auto parts = mx::quantize(x, quant.group, quant.bits);
  return mx::dequantize(parts[0], parts[1], parts[2], quant.group, quant.bits);
}

double at(const array& x, int head, int n, int d) {
  return double(
      x.data<float>()[(size_t(head) * size_t(x.shape(2)) + size_t(n)) * kDim + size_t(d)]);
}

struct Sequence {
  array keys, values;  // of history and step
};

constexpr float kSinks[kHeads] = {0.5f, -1, 2, 0};

// One query in float64; n is its place among the sequence's tokens.
std::vector<double> expected(const Case& c, const Sequence& s, const array& q, int head, int query,
                             int n) {
  const double scale = 1 / std::sqrt(double(kDim));
  const int first = c.window > 0 ? std::max(0, n + 1 - int(c.window)) : 0, kv = head / 2;
  double sum = c.sinks ? std::exp(double(kSinks[head])) : 0;
  std::vector<double> out(kDim, 0.0);
  for (int t = first; t <= n; t++) {
    double score = 0;
    for (int d = 0; d < kDim; d++) score += at(q, head, query, d) * at(s.keys, kv, t, d) * scale;
    if (c.softcap) score = 5 * std::tanh(score / 5);
    const double weight = std::exp(score);
    sum += weight;
    for (int d = 0; d < kDim; d++) out[size_t(d)] += weight * at(s.values, kv, t, d);
  }
  for (double& x : out) x /= sum;
  return out;
}

void append(MlxLayerState& state, const StepLayout& layout, const array& k, const array& v,
            MaskCache& masks) {
  state.begin_step(layout);
  state.append(k, v, false, masks);
  evaluate(state.planes());
}

void check(const Case& c, uint32_t seed) {
  std::mt19937 random(seed);
  const auto state = make_layer_state({kKvHeads, kDim, c.window, KvType::kF32, c.quant});
  std::vector<Sequence> sequences;
  StepLayout step;
  std::vector<array> new_keys, new_values, queries;
  for (size_t r = 0; r < c.lengths.size(); r++) {
    const int have = c.lengths[r];
    const array k = normal(random, kKvHeads, have + c.count);
    const array v = normal(random, kKvHeads, have + c.count);
    state->add_row();
    MaskCache masks;
    // Two steps, so that what mlx-lm quantizes behind the first one is.
    for (int from = 0, to = have - 1; from < have; from = to, to = have) {
      append(*state, {{{int(r), 0, to - from, from}}, to - from}, columns_of(k, from, to),
             columns_of(v, from, to), masks);
      state->commit_step();
      masks.clear();
    }
    step.rows.push_back({int(r), step.total_tokens, c.count, have});
    step.total_tokens += c.count;
    new_keys.push_back(columns_of(k, have, have + c.count));
    new_values.push_back(columns_of(v, have, have + c.count));
    queries.push_back(normal(random, kHeads, c.count));
    sequences.push_back({mx::contiguous(kept(k, c.quant)), mx::contiguous(kept(v, c.quant))});
    evaluate({sequences.back().keys, sequences.back().values, queries.back()});
  }
  MaskCache masks;
  append(*state, step, mx::concatenate(new_keys, 0), mx::concatenate(new_values, 0), masks);

  AttentionSpec spec;
  spec.heads = kHeads;
  spec.kv_heads = kKvHeads;
  spec.head_dim = kDim;
  spec.scale = float(1 / std::sqrt(double(kDim)));
  if (c.softcap) spec.softcap = 5;
  if (c.wide) spec.widen = AttentionSpec::Widen::kAlways;
  if (c.sinks)
    spec.sinks =
        Weight(1, kHeads, std::make_shared<ArrayStorage>(array(kSinks, {kHeads}, mx::float32)));
  const array all = mx::concatenate(queries, 0);
  for (const KvPart& part : state->parts()) {
    const array out = mx::contiguous(
        attention(with_rows(all, part.rows), part.planes, part.codec, part.mask, spec));
    evaluate({out});
    for (size_t i = 0; i < part.rows.size(); i++) {
      const size_t row = size_t(part.rows[i]);
      for (int head = 0; head < kHeads; head++)
        for (int query = 0; query < c.count; query++) {
          const auto wanted =
              expected(c, sequences[row], queries[row], head, query, c.lengths[row] + query);
          for (int d = 0; d < kDim; d++)
            ASSERT_NEAR(at(out, int(i) * kHeads + head, query, d), wanted[size_t(d)], 2e-5)
                << "row " << row << ", head " << head << ", query " << query;
        }
    }
  }
  state->commit_step();
}

TEST(MlxAttention, EveryCodecLayerAndFeatureEqualsFloat64) {
  uint32_t seed = 0;
  for (const KvQuant& quant : {KvQuant{}, KvQuant{8, 32, 0}, KvQuant{4, 64, 0}})
    for (const int64_t window : {0, 1, 4, 9, 64})
      for (const int feature : {0, 1, 2, 3})
        for (const std::vector<int>& lengths :
             std::vector<std::vector<int>>{{7}, {2, 13, 5}, {9, 9}})
          for (const int count : {1, 3}) {
            const Case c{quant, window, feature == 1, feature == 2, feature == 3, lengths, count};
            SCOPED_TRACE("bits " + std::to_string(quant.bits) + ", window " +
                         std::to_string(window) + ", feature " + std::to_string(feature) + ", " +
                         std::to_string(lengths.size()) + " rows, " + std::to_string(count) +
                         " tokens");
            check(c, ++seed);
            if (HasFatalFailure()) return;
          }
}

}  // namespace
}  // namespace mantou::on_mlx
