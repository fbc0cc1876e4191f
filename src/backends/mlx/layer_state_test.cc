// Random operations on MlxLayerState against a naive model, lists of tokens: what attention would
// read of every row, through the mask, are its own last tokens, in the bytes of mx::quantize where
// the row is quantized, plain where it is not yet.
#include "backends/mlx/layer_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>

#include "base/error.h"

namespace mantou::on_mlx {
namespace {

using Row = std::vector<uint32_t>;  // token names
using Bytes = std::string;          // one token's share of all planes

constexpr int kHeads = 2, kDim = 32;

// The values of a token, the same wherever it stands.
std::vector<float> noise(uint32_t token, bool value) {
  std::mt19937 random(token * 2 + (value ? 1 : 0));
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> out(kHeads * kDim);
  for (float& x : out) x = normal(random);
  return out;
}

// [rows, kHeads, N, kDim] of N tokens a row.
array tokens_array(const std::vector<Row>& rows, bool value) {
  const size_t count = rows[0].size();
  std::vector<float> all(rows.size() * kHeads * count * kDim);
  for (size_t r = 0; r < rows.size(); r++)
    for (size_t t = 0; t < count; t++) {
      const std::vector<float> v = noise(rows[r][t], value);
      for (size_t h = 0; h < kHeads; h++)
        std::copy_n(v.begin() + long(h * kDim), kDim,
                    all.begin() + long(((r * kHeads + h) * count + t) * kDim));
    }
  return array(all.data(), {int(rows.size()), kHeads, int(count), kDim}, mx::float32);
}

// What column `column` of row `row` holds in all planes.
Bytes column_bytes(const Planes& planes, int row, int column) {
  Bytes out;
  for (const array& plane : planes) {
    const size_t width = size_t(plane.shape(3)) * plane.itemsize();
    for (int h = 0; h < plane.shape(1); h++) {
      const size_t at =
          ((size_t(row) * size_t(plane.shape(1)) + size_t(h)) * size_t(plane.shape(2)) +
           size_t(column)) *
          width;
      const auto* const p = plane.data<char>() + at;
      out.append(p, width);
    }
  }
  return out;
}

Planes contiguous(const Planes& planes) {
  Planes out;
  for (const array& plane : planes) out.push_back(mx::contiguous(plane));
  evaluate(out);
  return out;
}

struct NaiveRow {
  Row tokens;
  bool quantized = false;  // from the first step on that begins with enough tokens
  size_t minimum = 0;      // tokens it held then, if that was late
  // Of a sliding layer (size > 0): the columns of a ring that never had others beside it, as
  // mlx-lm's RotatingKVCache lays them out; `turn` is where it was written last, 0 before it turns.
  Row ring;
  size_t turn = 0;
  std::vector<Row> steps;  // of the open round

  void append(const Row& fresh, size_t size) {
    tokens.insert(tokens.end(), fresh.begin(), fresh.end());
    if (size == 0) return;
    if (fresh.size() > 1) {
      std::rotate(ring.begin(), ring.begin() + long(turn), ring.end());
      ring.erase(ring.begin(), ring.end() - long(std::min(ring.size(), size - 1)));
      ring.insert(ring.end(), fresh.begin(), fresh.end());
      turn = 0;
      return;
    }
    if (ring.size() > size) ring.erase(ring.begin(), ring.end() - long(size));
    if (ring.size() < size) {
      ring.push_back(fresh[0]);
    } else {
      turn = turn % size + 1;
      ring[turn - 1] = fresh[0];
    }
  }
};

class Suite {
 public:
  Suite(const StateSpec& spec, uint32_t seed) : spec_(spec), random_(seed), state_(make()) {}

  void run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFailure(); i++) operate();
  }

 private:
  std::unique_ptr<MlxLayerState> make() const { return make_layer_state(spec_); }
  int below(int n) { return int(random_() % uint32_t(n)); }

  void operate() {
    switch (below(13)) {
      case 0:
        return add_row();
      case 1:
        return keep();
      case 2:
        return fork_and_join();
      case 3:
        return trim();
      case 4:
        return step(true);
      case 5:
        return round();
      case 6:
        return save();
      case 7:
        return restore();
      default:
        return step(false);
    }
  }

  void add_row() {
    if (rows_.size() >= 5) return;
    state_->add_row();
    rows_.emplace_back();
  }

  void keep() {
    if (below(3) != 0) return;
    std::vector<int> order(rows_.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = int(i);
    std::shuffle(order.begin(), order.end(), random_);
    order.resize(size_t(below(int(rows_.size()) + 1)));
    std::vector<NaiveRow> kept;
    for (const int row : order) kept.push_back(rows_[size_t(row)]);
    state_->keep(order);
    rows_ = std::move(kept);
  }

  void fork_and_join() {
    if (rows_.empty() || rows_.size() >= 5) return;
    const int row = below(int(rows_.size()));
    const auto forked = state_->fork(row);
    ASSERT_EQ(forked->rows(), 1);
    ASSERT_EQ(forked->tokens(0), int64_t(rows_[size_t(row)].tokens.size()));
    state_->join(std::move(*forked));
    rows_.push_back(NaiveRow(rows_[size_t(row)]));
  }

  void trim() {
    if (rows_.empty()) return;
    const int row = below(int(rows_.size()));
    Row& tokens = rows_[size_t(row)].tokens;
    const int drop = below(std::min(int(tokens.size()), 9) + 1);
    const int64_t left = int64_t(tokens.size()) - drop;
    const bool done = state_->trim(row, drop);
    if (done) tokens.resize(size_t(left));
    Row& ring = rows_[size_t(row)].ring;
    if (done && spec_.window > 0 && drop > 0) ring.resize(ring.size() - size_t(drop));
    // A full layer goes back as far as it likes, but for rows that were quantized late; a ring at
    // least while it is alone and never was full.
    const bool may = drop == 0 || left >= int64_t(rows_[size_t(row)].minimum);
    const bool must = rows_.size() == 1 && left + drop < spec_.window;
    if (spec_.window == 0 || must || !may) {
      EXPECT_EQ(done, may);
    }
  }

  // Steps of which an end chosen at random is taken back.
  void round() {
    const std::vector<NaiveRow> before = rows_;
    in_round_ = true;
    state_->begin_round();
    for (int steps = below(4); steps > 0; steps--) step(below(5) == 0);
    std::vector<int64_t> kept;
    for (size_t r = 0; r < rows_.size(); r++) {
      kept.push_back(below(int(rows_[r].tokens.size() - before[r].tokens.size()) + 1));
      NaiveRow row = before[r];
      auto left = size_t(kept.back());
      for (Row& step : rows_[r].steps) {
        step.resize(std::min(left, step.size()));
        left -= step.size();
        if (!step.empty()) row.append(step, size_t(spec_.window));
      }
      rows_[r] = std::move(row);
    }
    state_->end_round(kept);
    in_round_ = false;
    check_lengths();
  }

  // The saved bytes are those of the row's tokens, in order where no ring has turned.
  void save() {
    if (rows_.empty()) return;
    const int row = below(int(rows_.size()));
    const Snapshot saved = state_->snapshot(row);
    const NaiveRow& naive = rows_[size_t(row)];
    EXPECT_EQ(saved.numbers.at("tokens"), int64_t(naive.tokens.size()));
    EXPECT_EQ(saved.numbers.at("bits"), naive.quantized ? spec_.quant.bits : 0);
    const int64_t columns = saved.numbers.at("columns");
    const KvCodec codec =
        naive.quantized ? KvCodec{spec_.quant.bits, spec_.quant.group} : KvCodec{};
    const bool turned = spec_.window > 0 && saved.numbers.at("rotated") != 0;
    if (columns > 0 && !turned) {
      const Row last(naive.tokens.end() - columns, naive.tokens.end());
      const Planes expected =
          contiguous(codec.encode(tokens_array({last}, false), tokens_array({last}, true)));
      ASSERT_EQ(saved.ranges.size(), expected.size());
      for (size_t i = 0; i < expected.size(); i++) {
        ASSERT_EQ(saved.ranges[i].bytes.size(), expected[i].nbytes());
        EXPECT_EQ(std::memcmp(saved.ranges[i].bytes.data(), expected[i].data<char>(),
                              expected[i].nbytes()),
                  0);
      }
    }
    saved_.emplace_back(saved, naive);
    if (saved_.size() > 3) saved_.erase(saved_.begin() + below(int(saved_.size())));
  }

  void restore() {
    if (saved_.empty() || rows_.empty()) return;
    const auto& [saved, naive] = saved_[size_t(below(int(saved_.size())))];
    const int row = below(int(rows_.size()));
    state_->restore(row, saved);
    rows_[size_t(row)] = naive;
    check_lengths();
    const Snapshot again = state_->snapshot(row);
    EXPECT_EQ(again.numbers, saved.numbers);
    for (size_t i = 0; i < saved.ranges.size(); i++)
      EXPECT_TRUE(std::ranges::equal(again.ranges[i].bytes, saved.ranges[i].bytes));
  }

  void check_lengths() {
    for (size_t r = 0; r < rows_.size(); r++)
      EXPECT_EQ(state_->tokens(int(r)), int64_t(rows_[r].tokens.size()));
  }

  // Steps of 1 to 9 tokens of some rows; `aborted` leaves everything as it was, but for rings that
  // were sealed: their rows are empty then.
  void step(bool aborted) {
    if (rows_.empty()) return;
    std::vector<int> order(rows_.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = int(i);
    if (below(3) == 0) std::shuffle(order.begin(), order.end(), random_);
    if (below(3) == 0) order.resize(1 + size_t(below(int(order.size()))));
    const int counts[] = {1, 1, 1, 1, 2, 5, 9};
    int64_t count = counts[below(7)];
    for (const int row : order) count = std::min(count, state_->append_limit(row));

    StepLayout layout;
    std::vector<Row> fresh;
    for (const int row : order) {
      NaiveRow& naive = rows_[size_t(row)];
      const auto held = int64_t(naive.tokens.size());
      layout.rows.push_back({row, layout.total_tokens, int(count), held});
      layout.total_tokens += int(count);
      if (!in_round_ && !naive.quantized && spec_.quant.bits > 0 &&
          held >= std::max<int64_t>(1, spec_.quant.start)) {
        naive.quantized = true;
        if (spec_.quant.start > 0) naive.minimum = size_t(held);
      }
      fresh.emplace_back();
      for (int64_t i = 0; i < count; i++) fresh.back().push_back(next_token_++);
    }
    state_->begin_step(layout);
    MaskCache masks;
    if (!aborted || below(2) == 0)
      state_->append(tokens_array(fresh, false), tokens_array(fresh, true), below(2) == 0, masks);
    if (aborted) {
      const bool sealed = !in_round_ && below(3) == 0;
      if (sealed) state_->seal();
      state_->abort_step();
      if (sealed && spec_.window > 0)
        for (const int row : order) rows_[size_t(row)] = {};
      return check_lengths();
    }
    for (size_t i = 0; i < order.size(); i++) {
      NaiveRow& row = rows_[size_t(order[i])];
      row.append(fresh[i], size_t(spec_.window));
      if (in_round_) row.steps.push_back(fresh[i]);
    }
    size_t seen = 0;
    for (const KvPart& part : state_->parts()) {
      check(part, order, int(count));
      seen += part.rows.size();
    }
    EXPECT_EQ(seen, order.size());
    if (below(2) == 0) {
      state_->seal();
      evaluate(state_->planes());
    }
    state_->commit_step();
    check_lengths();
  }

  void check(const KvPart& part, const std::vector<int>& order, int count) {
    const Planes planes = contiguous(part.planes);
    const int columns = planes[0].shape(2);
    for (size_t i = 0; i < part.rows.size(); i++) {
      const auto place = size_t(part.rows[i]);
      const NaiveRow& naive = rows_[size_t(order[place])];
      EXPECT_EQ(part.codec.plain(), !naive.quantized);
      const Row& row = naive.tokens;
      for (int query = 0; query < count; query++) {
        std::vector<Bytes> seen;
        for (int c = 0; c < columns; c++)
          if (allowed(part.mask, int(i), query, c, count, columns))
            seen.push_back(column_bytes(planes, int(i), c));
        const int64_t end = int64_t(row.size()) - count + query + 1;
        const int64_t begin = spec_.window > 0 ? std::max<int64_t>(0, end - spec_.window) : 0;
        std::vector<Bytes> expected =
            bytes_of({row.begin() + long(begin), row.begin() + long(end)}, part.codec);
        if (spec_.window > 0 && part.rows.size() == 1) {
          if (count == 1) expected = bytes_of(naive.ring, part.codec);
        } else if (spec_.window > 0) {  // a ring of several rows is read in any order
          std::sort(seen.begin(), seen.end());
          std::sort(expected.begin(), expected.end());
        }
        ASSERT_TRUE(seen == expected)
            << "row " << order[place] << ", query " << query << " of " << count << ": "
            << seen.size() << " columns of " << expected.size();
      }
    }
  }

  static bool allowed(const Mask& mask, int row, int query, int column, int count, int columns) {
    if (mask.mode.empty()) return true;
    if (!mask.value) return column <= columns - count + query;
    const array full = mx::contiguous(mx::broadcast_to(
        *mask.value, {std::max(row + 1, mask.value->ndim() > 2 ? mask.value->shape(0) : 1), 1,
                      mask.value->shape(-2), mask.value->shape(-1)}));
    evaluate({full});
    EXPECT_EQ(full.shape(-1), columns);
    const int at = (row * full.shape(2) + query) * full.shape(3) + column;
    return full.data<bool>()[at];
  }

  static std::vector<Bytes> bytes_of(const Row& tokens, const KvCodec& codec) {
    const Planes planes =
        contiguous(codec.encode(tokens_array({tokens}, false), tokens_array({tokens}, true)));
    std::vector<Bytes> out;
    for (size_t t = 0; t < tokens.size(); t++) out.push_back(column_bytes(planes, 0, int(t)));
    return out;
  }

  StateSpec spec_;
  std::mt19937 random_;
  std::unique_ptr<MlxLayerState> state_;
  std::vector<NaiveRow> rows_;
  std::vector<std::pair<Snapshot, NaiveRow>> saved_;
  bool in_round_ = false;  // nothing is quantized then
  uint32_t next_token_ = 1;
};

TEST(MlxLayerStateProperties, EqualAListOfRows) {
  const int sequences = std::getenv("MANTOU_TEST_FULL") ? 10000 : 150;
  const KvQuant quants[] = {{}, {8, 32, 0}, {4, 32, 0}, {8, 32, 11}, {4, 32, 5}};
  std::mt19937 random(5);
  for (const bool slides : {false, true})
    for (int i = 0; i < sequences && !HasFailure(); i++) {
      StateSpec spec{kHeads, kDim, 0, KvType::kF32, quants[random() % 5]};
      if (slides) spec.window = 1 + int64_t(random() % 12);
      SCOPED_TRACE(spec.signature() + ", sequence " + std::to_string(i));
      Suite(spec, uint32_t(i)).run(24);
    }
}

TEST(MlxLayerState, RefusesGroupsThatHeadsDoNotHave) {
  EXPECT_THROW(make_layer_state({2, 32, 0, KvType::kF16, {8, 64, 0}}), Error);
}

void append(MlxLayerState& state, const Row& tokens) {
  state.begin_step({{{0, 0, int(tokens.size()), state.tokens(0)}}, int(tokens.size())});
  MaskCache masks;
  state.append(tokens_array({tokens}, false), tokens_array({tokens}, true), false, masks);
  evaluate(state.planes());
  state.commit_step();
}

// 2 · heads · dimensions · bytes of an element · tokens, where planes grow by 256 columns.
TEST(MlxLayerState, ATokenTakesWhatTheMathsSays) {
  for (const auto& [quant, element] : {std::pair(KvQuant{}, 4.0),
                                       {KvQuant{8, 32, 0}, 1 + 8.0 / 32},
                                       {KvQuant{4, 32, 0}, 0.5 + 8.0 / 32}}) {
    const auto state = make_layer_state({kHeads, kDim, 0, KvType::kF32, quant});
    state->add_row();
    append(*state, Row(1000, 3));
    append(*state, Row(24, 4));
    EXPECT_EQ(double(state->bytes(0)), 2 * kHeads * kDim * element * 1024);
    EXPECT_EQ(state->projected_bytes(1024), state->bytes(0));
  }
}

// Conversion happens one layer at a time: what it needs beside the planes is less than a layer's.
TEST(MlxLayerState, QuantizingRowsTakesNoMoreThanOneLayerMore) {
  constexpr int kTokens = 2048;
  const Row tokens(kTokens, 7);
  std::vector<std::unique_ptr<MlxLayerState>> layers;
  for (int i = 0; i < 6; i++) {
    layers.push_back(make_layer_state({kHeads, kDim, 0, KvType::kF32, {8, 32, kTokens}}));
    layers.back()->add_row();
    append(*layers.back(), tokens);
  }
  mx::clear_cache();
  const size_t before = mx::get_active_memory(), layer = layers[0]->bytes(0);
  ASSERT_GE(before, 6 * layer);
  mx::reset_peak_memory();
  for (const auto& state : layers) state->begin_step({{{0, 0, 1, kTokens}}, 1});
  EXPECT_LE(mx::get_peak_memory(), before + layer);
  EXPECT_LT(mx::get_active_memory(), before / 2);
}

TEST(MlxLayerState, RefusesSavedStatesThatDoNotFit) {
  const auto state = make_layer_state({kHeads, kDim, 5, KvType::kF32, {8, 32, 0}});
  state->add_row();
  append(*state, {1, 2, 3, 4, 5});
  append(*state, {6});
  append(*state, {7});
  const Snapshot good = state->snapshot(0);
  ASSERT_EQ(good.numbers.at("rotated"), 1);
  const auto refuses = [&](const std::function<void(Snapshot&)>& spoil) {
    Snapshot bad = good;
    spoil(bad);
    EXPECT_THROW(state->restore(0, bad), Error);
    EXPECT_EQ(state->tokens(0), 7);
  };
  refuses([](Snapshot& s) { s.layout = "cpu-blocks-1"; });
  refuses([](Snapshot& s) { s.signature = "kv:full:f16:2x8"; });
  refuses([](Snapshot& s) { s.numbers.erase("tokens"); });
  refuses([](Snapshot& s) { s.numbers["tokens"] = -1; });
  refuses([](Snapshot& s) { s.numbers["tokens"] = 4; });
  refuses([](Snapshot& s) { s.numbers["columns"] = 4; });
  refuses([](Snapshot& s) { s.numbers["index"] = 6; });
  refuses([](Snapshot& s) { s.numbers["bits"] = 4; });
  refuses([](Snapshot& s) { s.numbers["bits"] = 0; });
  refuses([](Snapshot& s) { s.numbers["float_type"] = 3; });
  refuses([](Snapshot& s) { s.ranges.pop_back(); });
  refuses([](Snapshot& s) { s.ranges[0].bytes = s.ranges[0].bytes.first(10); });
  state->restore(0, good);
}

TEST(MlxLayerState, RefusesStepsOfRaggedRows) {
  const auto state = make_layer_state({kHeads, kDim, 0});
  state->add_row();
  state->add_row();
  StepLayout layout{{{0, 0, 1, 0}, {1, 1, 2, 0}}, 3};
  EXPECT_THROW(state->begin_step(layout), Error);
}

}  // namespace
}  // namespace mantou::on_mlx
