#include "backends/mlx/kv_tensor_rows.h"

#include <algorithm>

#include "base/error.h"

namespace mantou::on_mlx {
namespace {

int64_t largest(const std::vector<int64_t>& values) {
  return values.empty() ? 0 : std::max<int64_t>(0, *std::max_element(values.begin(), values.end()));
}

}  // namespace

RopeOffset rope_offset(const std::vector<int64_t>& offsets) {
  if (std::all_of(offsets.begin(), offsets.end(), [&](int64_t o) { return o == offsets[0]; }))
    return int(offsets.empty() ? 0 : offsets[0]);
  return ints(offsets, {int(offsets.size())});
}

int64_t KvTensorRows::width() const {
  int64_t width = 0;
  for (int r = 0; r < rows(); r++) width = std::max(width, end(r));
  return width;
}

double KvTensorRows::bytes_per_token() const {
  if (planes_.empty() || offsets_.empty()) return 0;
  size_t bytes = 0;
  for (const array& plane : planes_) bytes += plane.nbytes();
  return double(bytes) / (double(rows()) * planes_[0].shape(2));
}

bool KvTensorRows::ends_together() const {
  for (int r = 1; r < rows(); r++)
    if (end(r) != end(0)) return false;
  return true;
}

bool KvTensorRows::aligned() const {
  return ends_together() &&
         std::all_of(left_pad_.begin(), left_pad_.end(), [](int64_t pad) { return pad == 0; });
}

void KvTensorRows::add_row() {
  const KvTensorRows empty = [] {
    KvTensorRows one;
    one.offsets_ = {0};
    one.left_pad_ = {0};
    return one;
  }();
  if (rows() == 0) {
    *this = empty;
  } else {
    const KvTensorRows old = *this;
    merge({&old, &empty});
  }
}

void KvTensorRows::append(const Planes& inputs) {
  const int64_t count = inputs[0].shape(2), needed = width() + count;
  const int64_t capacity = (needed + kPlaneGrowth - 1) / kPlaneGrowth * kPlaneGrowth;
  const bool together = ends_together();
  std::optional<array> positions;
  if (!together) {
    std::vector<int64_t> each;
    for (int r = 0; r < rows(); r++)
      for (int64_t i = 0; i < count; i++) each.push_back(end(r) + i);
    positions = ints(each, {rows(), 1, int(count), 1});
  }
  const int64_t first = end(0);
  Planes next;
  for (size_t i = 0; i < inputs.size(); i++) {
    const array& in = inputs[i];
    array base = planes_.empty() ? zero_columns(in, rows(), capacity) : planes_[i];
    if (base.shape(2) < needed)
      base = mx::concatenate({base, zero_columns(base, rows(), capacity - base.shape(2))}, 2);
    next.push_back(together
                       ? with_columns(base, in, first)
                       : mx::put_along_axis(base, mx::broadcast_to(*positions, in.shape()), in, 2));
  }
  planes_ = std::move(next);
  for (int64_t& offset : offsets_) offset += count;
}

Planes KvTensorRows::read() const {
  Planes views;
  const int64_t columns = width();
  for (const array& plane : planes_)
    views.push_back(plane.shape(2) == columns ? plane : columns_of(plane, 0, columns));
  return views;
}

void KvTensorRows::restore(Planes planes, std::vector<int64_t> offsets,
                           std::vector<int64_t> left_pad) {
  planes_ = std::move(planes);
  offsets_ = std::move(offsets);
  left_pad_ = std::move(left_pad);
}

void KvTensorRows::trim(int64_t count) {
  for (int64_t& offset : offsets_) offset -= count;
}

void KvTensorRows::trim(int row, int64_t count) { offsets_[size_t(row)] -= count; }

void KvTensorRows::merge(const std::vector<const KvTensorRows*>& parts) {
  Planes planes;
  std::vector<int64_t> offsets, left_pad;
  int64_t all = 0;
  const KvTensorRows* prototype = nullptr;
  for (const KvTensorRows* part : parts) {
    all = std::max(all, part->width());
    // Rows without tokens may have padding and no planes yet.
    if (!prototype && part->width() > 0 && !part->planes_.empty()) prototype = part;
  }
  for (size_t i = 0; parts.size() > 1 && prototype && i < prototype->planes_.size(); i++) {
    std::vector<array> pieces;
    for (const KvTensorRows* part : parts) {
      const int64_t used = part->width();
      if (used == 0 || part->planes_.empty()) {
        pieces.push_back(zero_columns(prototype->planes_[i], part->rows(), all));
        continue;
      }
      const array live = columns_of(part->planes_[i], 0, used);
      pieces.push_back(
          used == all ? live
                      : mx::concatenate({zero_columns(live, part->rows(), all - used), live}, 2));
    }
    planes.push_back(mx::concatenate(std::move(pieces), 0));
  }
  for (const KvTensorRows* part : parts) {
    const int64_t shift = parts.size() > 1 ? all - part->width() : 0;
    offsets.insert(offsets.end(), part->offsets_.begin(), part->offsets_.end());
    for (const int64_t pad : part->left_pad_) left_pad.push_back(pad + shift);
  }
  if (parts.size() == 1) planes = parts[0]->planes_;
  restore(std::move(planes), std::move(offsets), std::move(left_pad));
}

void KvTensorRows::align(const std::vector<int64_t>& left_pad) {
  if (left_pad == left_pad_) return;
  std::vector<int64_t> ends;
  for (size_t r = 0; r < left_pad.size(); r++) ends.push_back(offsets_[r] + left_pad[r]);
  const int64_t all = largest(ends);
  std::vector<Planes> live;
  for (int r = 0; r < rows(); r++) live.push_back(extract(r));
  Planes planes;
  for (size_t i = 0; i < planes_.size(); i++) {
    std::vector<array> parts;
    for (size_t r = 0; r < live.size(); r++) {
      std::vector<array> row{zero_columns(planes_[i], 1, left_pad[r])};
      if (!live[r].empty()) row.push_back(live[r][i]);
      row.push_back(zero_columns(planes_[i], 1, all - ends[r]));
      parts.push_back(mx::concatenate(std::move(row), 2));
    }
    planes.push_back(mx::concatenate(std::move(parts), 0));
  }
  restore(std::move(planes), offsets_, left_pad);
}

void KvTensorRows::filter(const std::vector<int>& keep) {
  if (keep.empty()) return clear();
  std::vector<int64_t> offsets, left_pad, ends;
  for (const int row : keep) {
    offsets.push_back(offsets_[size_t(row)]);
    left_pad.push_back(left_pad_[size_t(row)]);
    if (!prefill_ends_.empty()) ends.push_back(prefill_ends_[size_t(row)]);
  }
  const int64_t shared = *std::min_element(left_pad.begin(), left_pad.end());
  for (int64_t& pad : left_pad) pad -= shared;
  Planes planes;
  for (const array& plane : planes_) {
    const array selected = with_rows(plane, keep);
    planes.push_back(shared == 0 ? selected : columns_of(selected, shared, selected.shape(2)));
  }
  restore(std::move(planes), std::move(offsets), std::move(left_pad));
  prefill_ends_ = std::move(ends);
}

Planes KvTensorRows::extract(int row) const {
  const int64_t count = offsets_[size_t(row)], start = left_pad_[size_t(row)];
  Planes copies;
  for (const array& plane : planes_) {
    if (count == 0) break;
    copies.push_back(copy_of_row(plane, row, start, start + count));
  }
  return copies;
}

void KvTensorRows::rollback_round(const std::vector<int64_t>& keep) {
  if (!in_round()) fail(ErrorCode::kInternal, "no round is open");
  for (size_t r = 0; r < offsets_.size(); r++) offsets_[r] = before_round_[r] + keep[r];
  before_round_.clear();
}

void KvTensorRows::prepare_prefill(const PrefillPadding& padding) {
  for (size_t r = 0; r < padding.left.size(); r++) {
    left_pad_[r] += padding.left[r];
    offsets_[r] -= padding.left[r];
  }
  if (largest(padding.right) == 0) return;
  prefill_ends_.clear();
  for (size_t r = 0; r < offsets_.size(); r++)
    prefill_ends_.push_back(offsets_[r] + padding.lengths[r]);
}

void KvTensorRows::finalize_prefill() {
  if (prefill_ends_.empty()) return;
  std::vector<int64_t> shifts;
  for (size_t r = 0; r < offsets_.size(); r++)
    shifts.push_back(std::max<int64_t>(0, offsets_[r] - prefill_ends_[r]));
  // Only the columns in use turn, so that what is behind them stays behind.
  Planes planes;
  for (const array& plane : read()) planes.push_back(roll_columns(plane, shifts));
  std::vector<int64_t> offsets = offsets_, left_pad = left_pad_;
  for (size_t r = 0; r < shifts.size(); r++) {
    offsets[r] -= shifts[r];
    left_pad[r] += shifts[r];
  }
  restore(std::move(planes), std::move(offsets), std::move(left_pad));
  prefill_ends_.clear();
}

Mask KvTensorRows::mask(int64_t count, int64_t window, bool as_array) const {
  if (window == 0 && aligned() && (count == 1 || !as_array))
    return {count == 1 ? "" : "causal", std::nullopt};
  std::vector<int64_t> ends;
  for (int r = 0; r < rows(); r++) ends.push_back(end(r));
  const int batch = rows(), columns = int(width() + count);
  const array queries =
      mx::add(ints(ends, {batch, 1, 1, 1}),
              mx::reshape(mx::arange(0, int(count), 1, mx::int32), {1, 1, int(count), 1}));
  const array keys = mx::reshape(mx::arange(0, columns, 1, mx::int32), {1, 1, 1, columns});
  array mask = mx::logical_and(mx::less_equal(keys, queries),
                               mx::greater_equal(keys, ints(left_pad_, {batch, 1, 1, 1})));
  if (window > 0)
    mask =
        mx::logical_and(mask, mx::less(queries, mx::add(keys, array(int32_t(window), mx::int32))));
  return {"array", mask};
}

KvTensorRows::Validity KvTensorRows::validity() const {
  Validity v;
  for (size_t r = 0; r < offsets_.size(); r++) {
    const int64_t end = prefill_ends_.empty() ? offsets_[r] : prefill_ends_[r];
    v.offsets.push_back(std::max<int64_t>(0, std::min(offsets_[r], end)));
    v.starts.push_back(left_pad_[r]);
    v.ends.push_back(v.offsets.back() + left_pad_[r]);
  }
  return v;
}

void KvTensorRows::clear() { *this = KvTensorRows(); }

}  // namespace mantou::on_mlx
