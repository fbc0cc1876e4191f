// The property suite of LayerState kinds: random operations on several states at once, compared
// with a naive model, a list of rows that are lists of tokens.
//
// A kind is run through it by a Kind class:
//   std::unique_ptr<LayerState> make();             // no rows; all that it makes may be joined
//   void append(LayerState&, const StepLayout&, k, v);            // in a step; vectors of f32
//   float stored(LayerState&, int row, int64_t token, int head, int dim, bool value);
//   std::vector<float> attend(LayerState&, const StepLayout&, q);  // in a step, after append
//   StateSpec spec;  int heads;                     // of queries
//   // What storing keeps of a head's values: plain, quantized, or quantized after it was plain.
//   std::vector<float> expected(const std::vector<float>& head, bool plain, bool quantized);
//   bool may_run_out;  // what takes memory may fail for want of it
//   void shake();      // called between operations: poison free memory
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "backends/cpu/kv_test_util.h"
#include "base/error.h"
#include "tensor/layer_state.h"

namespace mantou::cpu::test {

template <class Kind>
class LayerStateSuite {
 public:
  LayerStateSuite(Kind& kind, uint64_t seed) : kind_(kind), random_(seed) {
    worlds_.push_back({kind_.make(), {}});
  }

  void run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFailure(); i++) {
      kind_.shake();
      World& world = worlds_[random_() % worlds_.size()];
      operate(world);
      for (World& any : worlds_) check_sizes(any);
      World& checked = worlds_[random_() % worlds_.size()];
      if (!checked.model.empty()) check_contents(checked, random_() % checked.model.size());
    }
    for (World& world : worlds_) {
      for (size_t row = 0; row < world.model.size(); row++) check_contents(world, row);
    }
  }

 private:
  // Tokens are names of their noise.
  struct Row : std::vector<uint64_t> {
    bool quantized = false;
    size_t minimum = 0;  // it may not become shorter
  };
  struct World {
    std::unique_ptr<LayerState> state;
    std::vector<Row> model;
  };

  int64_t below(int64_t n) { return int64_t(random_() % uint64_t(n)); }

  void operate(World& world) {
    switch (below(15)) {
      case 0:
        return add_row(world);
      case 1:
        return fork(world);
      case 2:
        return join(world);
      case 3:
        return keep(world);
      case 4:
        return trim(world);
      case 5:
        return release(world);
      case 6:
        return step(world, true);
      case 7:
        return round(world);
      case 8:
        return save(world);
      case 9:
        return restore(world);
      default:
        return step(world, false);
    }
  }

  void add_row(World& world) {
    if (world.model.size() >= 6) return;
    world.state->add_row();
    world.model.emplace_back();
    const KvQuant& quant = kind_.spec.quant;
    world.model.back().quantized = quant.bits > 0 && quant.start == 0;
  }

  void fork(World& world) {
    if (world.model.empty() || worlds_.size() >= 5) return;
    const int row = below(world.model.size());
    World forked{world.state->fork(row), {world.model[row]}};
    check_contents(forked, 0);
    worlds_.push_back(std::move(forked));
  }

  void join(World& world) {
    const size_t other = below(worlds_.size());
    if (&worlds_[other] == &world) return;
    world.state->join(std::move(*worlds_[other].state));
    EXPECT_EQ(worlds_[other].state->rows(), 0);
    auto& rows = worlds_[other].model;
    world.model.insert(world.model.end(), rows.begin(), rows.end());
    rows.clear();
    if (world.model.size() > 8) keep(world);
  }

  void keep(World& world) {
    std::vector<int> rows(world.model.size());
    for (size_t i = 0; i < rows.size(); i++) rows[i] = int(i);
    std::shuffle(rows.begin(), rows.end(), random_);
    rows.resize(std::min<size_t>(below(rows.size() + 1), 6));
    std::vector<Row> kept;
    for (int row : rows) kept.push_back(world.model[row]);
    world.state->keep(rows);
    world.model = std::move(kept);
  }

  void release(World& world) {
    if (worlds_.size() < 2) return;
    worlds_.erase(worlds_.begin() + (&world - worlds_.data()));
  }

  void trim(World& world) {
    if (world.model.empty()) return;
    const int row = below(world.model.size());
    Row& model = world.model[row];
    const int64_t drop =
        below(2) ? below(model.size() + 1) : below(std::min<int64_t>(model.size(), 70) + 1);
    if (world.state->trim(row, drop)) {
      model.resize(model.size() - drop);
    } else {
      // Only a sliding layer may have lost what the shorter row would need; rows that were
      // quantized late cannot become what they were before.
      EXPECT_GT(drop, 0);
      if (model.size() - size_t(drop) >= model.minimum) {
        EXPECT_GT(kind_.spec.window, 0);
        EXPECT_GT(int64_t(model.size()), kind_.spec.window - 1);
      }
    }
    check_contents(world, row);
  }

  // Lengths around the borders of blocks and windows.
  int step_tokens(int64_t have) {
    const int64_t window = kind_.spec.window > 0 ? kind_.spec.window : 64;
    const int64_t wanted[] = {
        0, 1, 1, 1, 2, 63, 64, 65, window - 1, window, window + 1, 2 * window + 3, below(150)};
    return int(
        std::clamp<int64_t>(wanted[below(std::size(wanted))], 0, std::max<int64_t>(0, 420 - have)));
  }

  StepLayout plan(World& world) {
    std::vector<int> rows(world.model.size());
    for (size_t i = 0; i < rows.size(); i++) rows[i] = int(i);
    std::shuffle(rows.begin(), rows.end(), random_);
    StepLayout layout;
    for (int row : rows) {
      if (below(3) == 0) continue;
      const int64_t have = world.model[row].size();
      const int64_t limit = world.state->append_limit(row);
      const int count = int(std::min<int64_t>(step_tokens(have), limit));
      layout.rows.push_back({row, layout.total_tokens, count, have});
      layout.total_tokens += layout.rows.back().count;
    }
    return layout;
  }

  void step(World& world, bool abort) {
    const StepLayout layout = plan(world);
    try {
      world.state->begin_step(layout);
    } catch (const Error& error) {
      EXPECT_TRUE(kind_.may_run_out);
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
      return;
    }
    for (const StepRow& row : layout.rows) note_conversion(world.model[row.state_row]);
    if (abort && below(2)) return world.state->abort_step();
    std::vector<Row> after = world.model;
    std::vector<float> k, v;
    const int width = kind_.spec.kv_heads * kind_.spec.head_dim;
    for (const StepRow& row : layout.rows) {
      for (int i = 0; i < row.count; i++) {
        after[row.state_row].push_back(++names_);
        for (int j = 0; j < width; j++) k.push_back(noise(names_, kKeys, j));
        for (int j = 0; j < width; j++) v.push_back(noise(names_, kValues, j));
      }
    }
    kind_.append(*world.state, layout, k, v);
    check_attention(world, layout, after);
    if (abort) return world.state->abort_step();
    world.state->commit_step();
    world.model = std::move(after);
  }

  // Steps of which an end chosen at random is taken back.
  void round(World& world) {
    const std::vector<Row> before = world.model;
    world.state->begin_round();
    for (int64_t steps = below(4); steps > 0; steps--) step(world, below(5) == 0);
    std::vector<int64_t> kept;
    for (size_t r = 0; r < before.size(); r++) {
      Row& row = world.model[r];
      kept.push_back(below(int64_t(row.size() - before[r].size()) + 1));
      row.resize(before[r].size() + size_t(kept.back()));
      // Quantized in this round, and at its end it would not have been yet.
      if (row.quantized && !before[r].quantized && row.size() <= row.minimum) {
        row.quantized = false;
        row.minimum = 0;
      }
    }
    world.state->end_round(kept);
  }

  // A row's bytes are those of a row that was appended alone.
  void save(World& world) {
    if (world.model.empty()) return;
    const int row = below(world.model.size());
    try {
      const Snapshot saved = world.state->snapshot(row);
      const auto alone = kind_.make();
      alone->add_row();
      append_alone(*alone, world.model[row]);
      const Snapshot expected = alone->snapshot(0);
      // A row that was cut to where it would be quantized stays quantized.
      if (saved.numbers.at("quantized") == expected.numbers.at("quantized"))
        expect_same_bytes(saved, expected);
      saved_.emplace_back(saved, world.model[row]);
    } catch (const Error& error) {
      EXPECT_TRUE(kind_.may_run_out) << error.message();
    }
    if (saved_.size() > 3) saved_.erase(saved_.begin() + below(saved_.size()));
  }

  void expect_same_bytes(const Snapshot& a, const Snapshot& b) {
    EXPECT_EQ(a.numbers.at("tokens"), b.numbers.at("tokens"));
    for (const SnapshotRange& range : a.ranges) {
      for (const SnapshotRange& other : b.ranges) {
        if (range.name != other.name) continue;
        EXPECT_TRUE(std::ranges::equal(range.bytes, other.bytes)) << range.name;
      }
    }
  }

  void restore(World& world) {
    if (saved_.empty() || world.model.empty()) return;
    const auto& [saved, model] = saved_[below(saved_.size())];
    const int row = below(world.model.size());
    try {
      world.state->restore(row, saved);
      world.model[row] = model;
    } catch (const Error& error) {
      EXPECT_TRUE(kind_.may_run_out) << error.message();
    }
    check_contents(world, row);
  }

  void append_alone(LayerState& state, const Row& model) {
    const auto tokens = int64_t(model.size());
    for (int64_t done = 0, count = 0; done < tokens; done += count) {
      count = std::min(tokens - done, state.append_limit(0));
      const StepLayout step{{StepRow{0, 0, int(count), done}}, int(count)};
      state.begin_step(step);
      append_tokens(state, step, model, done);
      state.commit_step();
    }
  }

  // A step has begun with this row.
  void note_conversion(Row& row) const {
    const KvQuant& quant = kind_.spec.quant;
    if (quant.bits == 0 || row.quantized || int64_t(row.size()) < quant.start) return;
    row.quantized = true;
    row.minimum = quant.start > 0 ? row.size() : 0;
  }

  // One query of the step equals float64 over the model's tokens, and bit for bit a row that was
  // appended at once to a new state.
  void check_attention(World& world, const StepLayout& layout, const std::vector<Row>& after) {
    if (layout.total_tokens == 0 || below(2)) return;
    const int width = kind_.heads * kind_.spec.head_dim;
    std::vector<float> q;
    for (int i = 0; i < layout.total_tokens * width; i++) q.push_back(2 * noise(1, kQueries, i));
    const std::vector<float> out = kind_.attend(*world.state, layout, q);
    const StepRow& row = layout.rows[below(layout.rows.size())];
    if (row.count == 0) return;
    const int token = below(row.count);
    const auto at = (row.first + token) * width;
    const std::vector<float> mine(out.begin() + at, out.begin() + at + width);

    Row& model = const_cast<Row&>(after[row.state_row]);
    const int64_t position = row.position + token;
    // In roundings of a logit's terms. Sums over codes are larger than what is left when the biases
    // are added: they round more.
    EXPECT_LT(difference(model, position, &q[at], mine), model.quantized ? 10 : 3);

    const auto anew = kind_.make();
    anew->add_row();
    std::vector<float> fresh;
    try {
      for (int64_t done = 0, count = 0; done <= position; done += count) {
        count = std::min(position + 1 - done, anew->append_limit(0));
        fresh = append_and_attend(*anew, model, done, int(count), &q[at], width);
      }
    } catch (const Error&) {
      EXPECT_TRUE(kind_.may_run_out);
      return;
    }
    EXPECT_TRUE(same_bits(mine, {fresh.end() - width, fresh.end()})) << "position " << position;
  }

  // The model's tokens from `first` on, in an open step of one row.
  void append_tokens(LayerState& state, const StepLayout& step, const Row& model, int64_t first) {
    std::vector<float> k, v;
    const int width = kind_.spec.kv_heads * kind_.spec.head_dim;
    for (int64_t t = first; t < first + step.total_tokens; t++) {
      for (int j = 0; j < width; j++) k.push_back(noise(model[t], kKeys, j));
      for (int j = 0; j < width; j++) v.push_back(noise(model[t], kValues, j));
    }
    kind_.append(state, step, k, v);
  }

  // Tokens [first, first + count) of the model in a step of their own; `query` is the last one's.
  std::vector<float> append_and_attend(LayerState& state, const Row& model, int64_t first,
                                       int count, const float* query, int width) {
    const StepLayout step{{StepRow{0, 0, count, first}}, count};
    state.begin_step(step);
    std::vector<float> queries(size_t(count) * width);
    std::copy_n(query, width, queries.end() - width);
    append_tokens(state, step, model, first);
    std::vector<float> out = kind_.attend(state, step, queries);
    state.commit_step();
    return out;
  }

  // What the layer keeps of a head of a token.
  std::vector<float> kept(const Row& row, int64_t token, Stream what, int head) const {
    std::vector<float> values;
    for (int d = 0; d < kind_.spec.head_dim; d++)
      values.push_back(noise(row[token], what, head * kind_.spec.head_dim + d));
    const bool plain = !row.quantized || size_t(token) < row.minimum;
    return kind_.expected(values, plain, row.quantized);
  }

  // From float64, in units of what f32 rounds off the largest sum of a logit's terms in that head,
  // and the exponential and the sums behind it (8 roundings): so much may each weight be wrong, and
  // with them the mean of values of size 1.
  double difference(const Row& row, int64_t position, const float* q,
                    const std::vector<float>& out) const {
    const StateSpec& spec = kind_.spec;
    const int64_t first = spec.window > 0 ? std::max<int64_t>(0, position + 1 - spec.window) : 0;
    const bool rotates = row.quantized && spec.quant.bits == 8;
    double worst = 0;
    for (int head = 0; head < kind_.heads; head++) {
      const int kv_head = head / (kind_.heads / spec.kv_heads);
      std::vector<double> sums(spec.head_dim, 0.0);
      std::vector<double> query(q + head * spec.head_dim, q + (head + 1) * spec.head_dim);
      if (rotates) query = rotated(query);
      double total = 0, largest = 0;
      for (int64_t t = first; t <= position; t++) {
        const std::vector<float> key = kept(row, t, kKeys, kv_head);
        const std::vector<float> value = kept(row, t, kValues, kv_head);
        double logit = 0, terms = 0;
        for (int d = 0; d < spec.head_dim; d++) {
          logit += query[size_t(d)] * double(key[size_t(d)]);
          terms += std::fabs(query[size_t(d)] * double(key[size_t(d)]));
        }
        largest = std::max(largest, terms);
        total += std::exp(logit);
        for (int d = 0; d < spec.head_dim; d++)
          sums[d] += std::exp(logit) * double(value[size_t(d)]);
      }
      if (rotates) sums = rotated(sums);
      for (int d = 0; d < spec.head_dim; d++) {
        const double error =
            std::fabs(sums[d] / total - out[head * spec.head_dim + d]) / (0x1p-24 * (8 + largest));
        if (!(error <= worst)) worst = error;
      }
    }
    return worst;
  }

  void check_sizes(World& world) {
    ASSERT_EQ(world.state->rows(), int(world.model.size()));
    for (int row = 0; row < world.state->rows(); row++) {
      const int64_t tokens = world.state->tokens(row);
      EXPECT_EQ(tokens, int64_t(world.model[row].size()));
      EXPECT_LE(world.state->bytes(row), world.state->projected_bytes(tokens));
    }
  }

  // What the next query can see.
  void check_contents(World& world, int row) {
    const Row& model = world.model[row];
    const StateSpec& spec = kind_.spec;
    const int64_t tokens = model.size();
    ASSERT_EQ(world.state->tokens(row), tokens);
    for (int64_t t = spec.window > 0 ? std::max<int64_t>(0, tokens + 1 - spec.window) : 0;
         t < tokens; t++) {
      for (int head = 0; head < spec.kv_heads; head++) {
        for (const Stream what : {kKeys, kValues}) {
          const std::vector<float> wanted = kept(model, t, what, head);
          for (int d = 0; d < spec.head_dim; d++)
            ASSERT_EQ(kind_.stored(*world.state, row, t, head, d, what == kValues),
                      wanted[size_t(d)])
                << "row " << row << " token " << t << " of " << tokens;
        }
      }
    }
  }

  Kind& kind_;
  std::mt19937_64 random_;
  std::vector<World> worlds_;
  std::vector<std::pair<Snapshot, Row>> saved_;
  uint64_t names_ = 1000;
};

}  // namespace mantou::cpu::test
