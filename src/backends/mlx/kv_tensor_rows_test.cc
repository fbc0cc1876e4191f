// Random operations on KvTensorRows against lists of tokens: what a row's columns hold, what its
// mask lets it see, and where its next token stands.
#include "backends/mlx/kv_tensor_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

namespace mantou::on_mlx {
namespace {

using Row = std::vector<int>;  // a token is a number; planes hold it, and twice it

// Two planes of different heads and fields whose every cell is the token (times 1 or 2).
Planes planes_of(const std::vector<Row>& rows) {
  const int batch = int(rows.size()), count = int(rows[0].size());
  std::vector<float> values;
  for (const Row& row : rows)
    for (const int token : row) values.push_back(float(token));
  const array base(values.data(), {batch, 1, count, 1}, mx::float32);
  return {mx::add(base, mx::zeros({batch, 2, count, 3})),
          mx::add(mx::multiply(base, array(2.0f)), mx::zeros({batch, 1, count, 2}))};
}

Row tokens_in(const Planes& planes, int row, int from, int to) {
  Row out;
  if (planes.empty()) return out;
  Planes copies;
  for (const array& plane : planes) copies.push_back(mx::contiguous(plane));
  evaluate(copies);
  for (int c = from; c < to; c++) {
    const array& first = copies[0];
    const int columns = first.shape(2);
    const float token = first.data<float>()[(row * 2 * columns + c) * 3];
    for (int h = 0; h < 2; h++)
      for (int f = 0; f < 3; f++)
        EXPECT_EQ(first.data<float>()[((row * 2 + h) * columns + c) * 3 + f], token);
    EXPECT_EQ(copies[1].data<float>()[(row * columns + c) * 2 + 1], 2 * token);
    out.push_back(int(token));
  }
  return out;
}

class Suite {
 public:
  explicit Suite(uint32_t seed) : random_(seed) {}

  void run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFailure(); i++) {
      operate();
      check();
    }
  }

 private:
  int below(int n) { return int(random_() % uint32_t(n)); }
  Row fresh(int count) {
    Row row;
    for (int i = 0; i < count; i++) row.push_back(next_++);
    return row;
  }

  void operate() {
    switch (below(9)) {
      case 0:
        return add_row();
      case 1:
        return merge();
      case 2:
        return filter();
      case 3:
        return align();
      case 4:
        return round();
      case 5:
        return prefill();
      case 6:
        return trim();
      default:
        return append(1 + (below(4) == 0 ? below(300) : below(3)));
    }
  }

  void add_row() {
    if (model_.size() >= 4) return;
    rows_.add_row();
    model_.emplace_back();
  }

  void append(int count) {
    if (model_.empty()) return;
    std::vector<Row> more;
    for (Row& row : model_) {
      more.push_back(fresh(count));
      row.insert(row.end(), more.back().begin(), more.back().end());
    }
    rows_.append(planes_of(more));
  }

  void merge() {
    if (model_.size() >= 4) return;
    KvTensorRows other;
    other.add_row();
    Row row = fresh(below(20));
    if (!row.empty()) other.append(planes_of({row}));
    const KvTensorRows mine = rows_;
    rows_.merge({&mine, &other});
    model_.push_back(std::move(row));
  }

  void filter() {
    std::vector<int> keep(model_.size());
    for (size_t i = 0; i < keep.size(); i++) keep[i] = int(i);
    std::shuffle(keep.begin(), keep.end(), random_);
    keep.resize(size_t(below(int(keep.size()) + 1)));
    std::vector<Row> kept;
    for (const int row : keep) kept.push_back(model_[size_t(row)]);
    rows_.filter(keep);
    model_ = std::move(kept);
    if (keep.size() <= 1) return;
    // Padding that all share is dropped.
    EXPECT_EQ(*std::min_element(rows_.left_pad().begin(), rows_.left_pad().end()), 0);
  }

  void align() {
    std::vector<int64_t> pads;
    for (size_t i = 0; i < model_.size(); i++) pads.push_back(below(6));
    if (model_.empty()) return;
    rows_.align(pads);
    EXPECT_EQ(rows_.left_pad(), pads);
  }

  // Some tokens, of which each row keeps as many as it likes.
  void round() {
    if (model_.empty()) return;
    const std::vector<Row> before = model_;
    const int count = 1 + below(4);
    rows_.begin_round();
    append(count);
    if (below(3) == 0) return rows_.commit_round();
    std::vector<int64_t> keep;
    for (size_t r = 0; r < model_.size(); r++) {
      keep.push_back(below(count + 1));
      model_[r].resize(before[r].size() + size_t(keep.back()));
    }
    rows_.rollback_round(keep);
  }

  // A chunk of which each row uses the beginning; the rest is padding.
  void prefill() {
    if (model_.empty()) return;
    const int width = 1 + below(8);
    PrefillPadding padding;
    std::vector<Row> chunk;
    for (Row& row : model_) {
      const int used = 1 + below(width);
      const Row real = fresh(used);
      row.insert(row.end(), real.begin(), real.end());
      chunk.push_back(real);
      chunk.back().resize(size_t(width), -1);
      padding.lengths.push_back(used);
      padding.right.push_back(width - used);
    }
    rows_.prepare_prefill(padding);
    rows_.append(planes_of(chunk));
    const KvTensorRows::Validity validity = rows_.validity();
    for (size_t r = 0; r < model_.size(); r++) {
      EXPECT_EQ(validity.offsets[r], int64_t(model_[r].size()));
      EXPECT_EQ(validity.ends[r] - validity.starts[r], validity.offsets[r]);
    }
    rows_.finalize_prefill();
  }

  void trim() {
    if (model_.empty()) return;
    const int row = below(int(model_.size()));
    Row& tokens = model_[size_t(row)];
    const int drop = below(std::min(int(tokens.size()), 5) + 1);
    rows_.trim(row, drop);
    tokens.resize(tokens.size() - size_t(drop));
  }

  void check() {
    ASSERT_EQ(rows_.rows(), int(model_.size()));
    const Planes planes = rows_.read();
    for (int r = 0; r < rows_.rows(); r++) {
      const Row& row = model_[size_t(r)];
      ASSERT_EQ(rows_.offsets()[size_t(r)], int64_t(row.size()));
      const auto from = int(rows_.left_pad()[size_t(r)]);
      if (!row.empty()) {
        ASSERT_EQ(tokens_in(planes, r, from, int(rows_.end(r))), row) << "row " << r;
        ASSERT_EQ(tokens_in(rows_.extract(r), 0, 0, int(row.size())), row);
      }
    }
    if (!model_.empty()) check_mask(1 + below(4), below(3) == 0 ? 1 + below(9) : 0);
  }

  void check_mask(int count, int64_t window) {
    const Mask mask = rows_.mask(count, window, below(2) == 0);
    const int columns = int(rows_.width()) + count;
    std::optional<array> full;
    if (mask.value) {
      ASSERT_EQ(mask.value->shape(-1), columns);
      full = mx::contiguous(mx::broadcast_to(*mask.value, {rows_.rows(), 1, count, columns}));
      evaluate({*full});
    }
    for (int r = 0; r < rows_.rows(); r++)
      for (int q = 0; q < count; q++)
        for (int c = 0; c < columns; c++) {
          const int64_t at = rows_.end(r) + q;  // the query's column
          const bool sees =
              c <= at && c >= rows_.left_pad()[size_t(r)] && (window == 0 || at - c < window);
          const bool allowed =
              full ? full->data<bool>()[(r * count + q) * columns + c] : c <= columns - count + q;
          ASSERT_EQ(allowed, sees) << "row " << r << ", query " << q << ", column " << c;
        }
  }

  std::mt19937 random_;
  KvTensorRows rows_;
  std::vector<Row> model_;
  int next_ = 1;
};

TEST(KvTensorRowsProperties, EqualAListOfRows) {
  const int sequences = std::getenv("MANTOU_TEST_FULL") ? 10000 : 100;
  for (int i = 0; i < sequences && !HasFailure(); i++) {
    SCOPED_TRACE("sequence " + std::to_string(i));
    Suite(uint32_t(i)).run(15);
  }
}

// Planes grow by whole 256 columns, and only when they must.
TEST(KvTensorRows, PlanesGrowByMultiplesOf256) {
  KvTensorRows rows;
  rows.add_row();
  EXPECT_EQ(rows.bytes_per_token(), 0);
  rows.append(planes_of({Row(300, 1)}));
  EXPECT_EQ(rows.planes()[0].shape(2), 512);
  rows.append(planes_of({Row(212, 1)}));
  EXPECT_EQ(rows.planes()[0].shape(2), 512);
  rows.append(planes_of({Row(1, 1)}));
  EXPECT_EQ(rows.planes()[0].shape(2), 768);
  EXPECT_EQ(rows.bytes_per_token(), (2 * 3 + 2) * 4);
}

TEST(RopeOffset, IsOneNumberWhereAllRowsAgree) {
  EXPECT_EQ(std::get<int>(rope_offset({7, 7})), 7);
  const array each = std::get<array>(rope_offset({5, 3}));
  evaluate({each});
  EXPECT_EQ(each.data<int32_t>()[0], 5);
  EXPECT_EQ(each.data<int32_t>()[1], 3);
}

}  // namespace
}  // namespace mantou::on_mlx
