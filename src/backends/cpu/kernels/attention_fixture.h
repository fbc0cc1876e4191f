// For tests of attention: a layer's state with rows of noise and the steps that query them; thread
// pools of one to three threads.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kv_test_util.h"

namespace mantou::cpu::test {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A layer's state with rows of noise, and the step that queries them.
struct TestLayer {
  StateSpec spec;
  AttentionParams params;
  std::shared_ptr<KvBlockPool> pool = KvBlockPool::create();
  std::unique_ptr<KvRows> state;
  std::vector<float> sinks;
  mantou::Isa append_isa = mantou::detected_isa();
  float query_size = 1;

  TestLayer(const StateSpec& state_spec, int heads) : spec(state_spec) {
    params.heads = heads;
    params.scale = 1 / std::sqrt(float(spec.head_dim));
    params.window = spec.window;
    state = std::make_unique<KvRows>(spec, pool);
    poison(*pool, state->layout().block_bytes, 40);
    if (spec.quant.bits > 0) poison(*pool, kv_quantized_layout(spec).block_bytes, 40);
  }

  void add_sinks() {
    for (int i = 0; i < params.heads; i++) sinks.push_back(noise(99, 0, i));
    params.sinks = sinks;
  }

  // Rows of a step: `counts[i]` more tokens for row i, 0 for none.
  StepLayout layout(const std::vector<int>& counts) const {
    StepLayout layout;
    for (int row = 0; row < int(counts.size()); row++) {
      if (counts[row] == 0) continue;
      layout.rows.push_back({row, layout.total_tokens, counts[row], state->tokens(row)});
      layout.total_tokens += counts[row];
    }
    return layout;
  }

  std::vector<float> values(const StepLayout& layout, Stream what, int width) const {
    std::vector<float> all;
    for (const StepRow& row : layout.rows) {
      append_noise(stream(row.state_row, what), row.position, row.count, width, all);
    }
    if (what == kQueries) {
      for (float& x : all) x *= query_size;
    }
    return all;
  }

  void append(ThreadPool& threads, const StepLayout& layout) {
    const int width = spec.kv_heads * spec.head_dim;
    append_kv(threads, *state, layout, values(layout, kKeys, width), values(layout, kValues, width),
              append_isa);
  }

  std::vector<float> query(ThreadPool& threads, AttentionWorkspace& workspace,
                           const StepLayout& layout, mantou::Isa isa) const {
    const std::vector<float> q = values(layout, kQueries, params.heads * spec.head_dim);
    std::vector<float> out(q.size(), kNan);
    attend(threads, workspace, *state, params, layout, q, out, isa);
    return out;
  }

  // Appends, attends, commits.
  std::vector<float> step(ThreadPool& threads, AttentionWorkspace& workspace,
                          const std::vector<int>& counts, mantou::Isa isa) {
    const StepLayout plan = layout(counts);
    state->begin_step(plan);
    append(threads, plan);
    std::vector<float> out = query(threads, workspace, plan, isa);
    state->commit_step();
    return out;
  }

  // Largest difference from float64 over `samples` of the step's queries × heads.
  double error(const StepLayout& layout, const std::vector<float>& out, int samples) const {
    const int head_dim = spec.head_dim;
    const std::vector<float> q = values(layout, kQueries, params.heads * head_dim);
    std::mt19937 random(7);
    double worst = 0;
    for (int i = 0; i < samples; i++) {
      const StepRow& row = layout.rows[random() % layout.rows.size()];
      const int token = random() % row.count, head = random() % params.heads;
      const size_t at = (size_t(row.first + token) * params.heads + head) * head_dim;
      const std::vector<double> expected = reference_attention(
          state->layout(), state->view(row.state_row), params, row.position + token, head, &q[at]);
      for (int d = 0; d < head_dim; d++) {
        const double difference = std::fabs(expected[d] - out[at + d]);
        if (!(difference <= worst)) worst = difference;  // NaN stays
      }
    }
    return worst;
  }
};

struct Threads {
  ThreadPool one{1}, two{2}, three{3};
  AttentionWorkspace workspace;
  std::vector<ThreadPool*> all = {&one, &two, &three};
};

}  // namespace mantou::cpu::test
