#include "backends/mlx/kv_ring_rows.h"

#include <algorithm>

#include "base/error.h"

namespace mantou::on_mlx {
namespace {

array column_numbers(int64_t count) { return mx::arange(0, int(count), 1, mx::int32); }

}  // namespace

int64_t KvRingRows::held(int row) const {
  if (planes_.empty()) return 0;
  const int64_t columns = rotated_ ? size_ : index_;
  return std::min(offsets_[size_t(row)], columns - std::max<int64_t>(0, left_pad_[size_t(row)]));
}

void KvRingRows::add_row() {
  KvRingRows empty(size_);
  empty.offsets_ = {0};
  empty.left_pad_ = {0};
  empty.turns_ = {0};
  if (rows() == 0) {
    *this = empty;
  } else {
    const KvRingRows old = *this;
    merge({&old, &empty});
  }
}

Planes KvRingRows::append(const Planes& inputs) {
  return inputs[0].shape(2) == 1 && prefill_ends_.empty() ? append_one(inputs)
                                                          : append_many(inputs);
}

int64_t KvRingRows::turn_after_one(int row) const {
  const int64_t turn = turns_[size_t(row)];
  if (turn > 0) return turn == size_ ? 1 : turn + 1;
  const int64_t pad = std::max<int64_t>(0, left_pad_[size_t(row)]);
  return (rotated_ ? size_ : index_) - pad >= size_ ? 1 : 0;
}

Planes KvRingRows::append_one(const Planes& inputs) {
  for (int r = 0; r < rows(); r++) turns_[size_t(r)] = turn_after_one(r);
  Planes planes = planes_;
  std::vector<int64_t> left_pad = left_pad_;
  int64_t index = index_, columns = planes.empty() ? 0 : planes[0].shape(2);
  if (planes.empty() || (total_ >= columns && columns < size_)) {
    const int64_t more = std::min(kPlaneGrowth, size_ - total_);
    for (size_t i = 0; i < inputs.size(); i++) {
      const array zeros = zero_columns(inputs[i], rows(), more);
      if (planes.size() < inputs.size() && planes.size() == i)
        planes.push_back(zeros);
      else
        planes[i] = mx::concatenate({planes[i], zeros}, 2);
    }
    index = total_;
    columns = planes[0].shape(2);
  }
  if (const int64_t extra = columns - size_; extra > 0) {
    for (array& plane : planes) plane = columns_of(plane, extra, columns);
    for (int64_t& pad : left_pad) pad -= extra;
    index = size_;
    columns = size_;
  }
  bool rotated = rotated_;
  if (index == size_) {
    rotated = true;
    index = 0;
  }
  if (rotated)
    for (int64_t& pad : left_pad) pad--;
  for (size_t i = 0; i < planes.size(); i++) planes[i] = with_columns(planes[i], inputs[i], index);
  planes_ = std::move(planes);
  left_pad_ = std::move(left_pad);
  index_ = index + 1;
  rotated_ = rotated;
  total_++;
  for (int64_t& offset : offsets_) offset++;
  Planes views = planes_;
  if (total_ < columns)
    for (array& view : views) view = columns_of(view, 0, total_);
  return views;
}

Planes KvRingRows::append_many(const Planes& inputs) {
  const int64_t count = inputs[0].shape(2);
  if (planes_.empty()) {
    planes_ = inputs;
  } else {
    planes_ = temporal();
    index_ = planes_[0].shape(2);
    rotated_ = false;
    roll_right_padding();
    const int64_t extra = std::max<int64_t>(0, index_ - size_ + 1);
    for (int64_t& pad : left_pad_) pad -= extra;
    for (size_t i = 0; i < planes_.size(); i++) {
      const array kept = extra > 0 ? columns_of(planes_[i], extra, index_) : planes_[i];
      planes_[i] = mx::concatenate({kept, inputs[i]}, 2);
    }
  }
  total_ += count;
  index_ = planes_[0].shape(2);
  turns_.assign(turns_.size(), 0);
  for (int64_t& offset : offsets_) offset += count;
  return planes_;
}

Planes KvRingRows::temporal() const {
  Planes planes;
  for (const array& plane : planes_) {
    const int64_t columns = plane.shape(2);
    if (index_ == columns)
      planes.push_back(plane);
    else if (rotated_)
      planes.push_back(
          mx::concatenate({columns_of(plane, index_, columns), columns_of(plane, 0, index_)}, 2));
    else
      planes.push_back(columns_of(plane, 0, index_));
  }
  return planes;
}

void KvRingRows::roll_right_padding() {
  if (prefill_ends_.empty()) return;
  std::vector<int64_t> shifts;
  for (size_t r = 0; r < offsets_.size(); r++) {
    shifts.push_back(std::max<int64_t>(0, offsets_[r] - prefill_ends_[r]));
    left_pad_[r] += shifts.back();
    offsets_[r] -= shifts.back();
  }
  for (array& plane : planes_) plane = roll_columns(plane, shifts);
}

Mask KvRingRows::mask(int64_t count) const {
  const int64_t before = std::min(size_ - 1, total_), columns = before + count;
  if (alone()) {
    if (count == 1) return {"", std::nullopt};
    if (columns <= size_) return {"causal", std::nullopt};
  }
  const array keys = mx::reshape(column_numbers(columns), {1, int(columns)});
  const array queries =
      mx::reshape(mx::arange(int(before), int(columns), 1, mx::int32), {int(count), 1});
  const array window = array(int32_t(size_), mx::int32);
  array mask =
      mx::logical_and(mx::greater_equal(queries, keys), mx::less(queries, mx::add(keys, window)));
  if (alone()) return {"array", mask};
  const bool one = count == 1, turns = one && (rotated_ || index_ >= size_);
  const int64_t history = !one && rotated_ ? size_ : index_;
  const int64_t trim = std::max<int64_t>(0, history - size_ + (one ? 0 : 1));
  std::vector<int32_t> pads;
  for (const int64_t pad : left_pad_) pads.push_back(int32_t(pad - trim - (turns ? 1 : 0)));
  mask = mx::logical_and(mask,
                         mx::greater_equal(keys, array(pads.data(), {rows(), 1, 1, 1}, mx::int32)));
  if (turns) mask = mx::roll(mask, int(index_ >= size_ ? 0 : index_) + 1, -1);
  return {"array", mask};
}

bool KvRingRows::trim(int row, int64_t count) {
  if (rows() != 1 || row != 0 || rotated_ || total_ >= size_ || count > offsets_[0]) return false;
  offsets_[0] -= count;
  total_ -= count;
  index_ -= count;
  return true;
}

void KvRingRows::merge(const std::vector<const KvRingRows*>& parts) {
  std::vector<KvRingRows> each;
  for (const KvRingRows* part : parts)
    for (int r = 0; r < part->rows(); r++) each.push_back(part->extract_temporal(r));
  if (each.size() == 1) {
    *this = each[0].extract(0);
    return;
  }
  KvRingRows all(size_);
  const KvRingRows* prototype = nullptr;
  for (const KvRingRows& row : each) {
    all.index_ = std::max(all.index_, row.index_);
    if (!prototype && row.index_ > 0) prototype = &row;
  }
  for (const KvRingRows& row : each) {
    all.offsets_.push_back(row.offsets_[0]);
    all.left_pad_.push_back(all.index_ - row.index_);
    all.turns_.push_back(row.turns_[0]);
  }
  for (size_t i = 0; prototype && i < prototype->planes_.size(); i++) {
    std::vector<array> rows;
    for (const KvRingRows& row : each) {
      std::vector<array> parts_of_row{
          zero_columns(prototype->planes_[i], 1, all.index_ - row.index_)};
      if (row.index_ > 0) parts_of_row.push_back(row.planes_[i]);
      rows.push_back(mx::concatenate(std::move(parts_of_row), 2));
    }
    all.planes_.push_back(mx::concatenate(std::move(rows), 0));
  }
  all.total_ = all.index_;
  *this = std::move(all);
}

void KvRingRows::filter(const std::vector<int>& keep) {
  if (keep.empty()) {
    *this = KvRingRows(size_);
    return;
  }
  if (keep.size() == 1 && rows() > 1 && prefill_ends_.empty()) {
    *this = extract(keep[0]);
    return;
  }
  std::vector<int64_t> offsets, left_pad, turns, ends;
  for (const int row : keep) {
    turns.push_back(turns_[size_t(row)]);
    offsets.push_back(offsets_[size_t(row)]);
    left_pad.push_back(left_pad_[size_t(row)]);
    if (!prefill_ends_.empty()) ends.push_back(prefill_ends_[size_t(row)]);
  }
  for (array& plane : planes_) plane = with_rows(plane, keep);
  offsets_ = std::move(offsets);
  left_pad_ = std::move(left_pad);
  turns_ = std::move(turns);
  prefill_ends_ = std::move(ends);
}

KvRingRows KvRingRows::extract(int row) const {
  KvRingRows one = extract_temporal(row);
  const int64_t turn = one.turns_[0];
  if (turn == 0) return one;
  for (array& plane : one.planes_) plane = roll_columns(plane, {turn});
  one.index_ = turn;
  one.rotated_ = true;
  return one;
}

KvRingRows KvRingRows::extract_temporal(int row) const {
  KvRingRows one(size_);
  one.offsets_ = {offsets_[size_t(row)]};
  one.left_pad_ = {0};
  one.turns_ = {turns_[size_t(row)]};
  const int64_t pad = std::max<int64_t>(0, left_pad_[size_t(row)]);
  for (const array& plane : temporal())
    one.planes_.push_back(copy_of_row(plane, row, pad, plane.shape(2)));
  if (!one.planes_.empty()) one.index_ = one.planes_[0].shape(2);
  if (one.index_ == 0) one.planes_.clear();
  one.total_ = one.offsets_[0];
  return one;
}

void KvRingRows::adopt(Planes planes, int64_t offset, int64_t index, bool rotated) {
  *this = KvRingRows(size_);
  offsets_ = {offset};
  left_pad_ = {0};
  turns_ = {rotated ? index : 0};
  planes_ = std::move(planes);
  index_ = index;
  rotated_ = rotated;
  total_ = offset;
}

void KvRingRows::prepare_prefill(const PrefillPadding& padding) {
  for (size_t r = 0; r < padding.left.size(); r++) {
    left_pad_[r] += padding.left[r];
    offsets_[r] -= padding.left[r];
  }
  if (std::all_of(padding.right.begin(), padding.right.end(), [](int64_t n) { return n == 0; }))
    return;
  prefill_ends_.clear();
  for (size_t r = 0; r < offsets_.size(); r++)
    prefill_ends_.push_back(offsets_[r] + padding.lengths[r]);
}

void KvRingRows::finalize_prefill() {
  roll_right_padding();
  prefill_ends_.clear();
}

}  // namespace mantou::on_mlx
