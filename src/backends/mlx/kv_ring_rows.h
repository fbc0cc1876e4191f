// Rows of a sliding layer's cache in shared planes used as a ring of `size` columns: what
// KvTensorRows is to full attention.
//
// One token a row is written at the ring's index, over the oldest; longer appends put the ring into
// temporal order first and leave up to size − 1 older columns before the new ones. left_pad[r] are
// the columns before row r's tokens; it falls while the ring turns, and is below 0 once none is
// left. mlx-lm's RotatingKVCache and BatchRotatingKVCache with keep = 0. Engine thread.
#pragma once

#include "backends/mlx/kv_tensor_rows.h"

namespace mantou::on_mlx {

class KvRingRows {
 public:
  explicit KvRingRows(int64_t size) : size_(size) {}

  int64_t size() const { return size_; }
  int rows() const { return int(offsets_.size()); }
  const std::vector<int64_t>& offsets() const { return offsets_; }  // tokens seen by each row
  const std::vector<int64_t>& left_pad() const { return left_pad_; }
  const Planes& planes() const { return planes_; }
  int64_t index() const { return index_; }  // the column that is written next, or `size`
  bool rotated() const { return rotated_; }
  int64_t total() const { return total_; }  // columns ever appended
  // Tokens of a row that the ring still holds.
  int64_t held(int row) const;

  void add_row();
  // Appends inputs[plane] [rows, heads, N, fields]; returns what attention reads then, in the order
  // of mask()'s columns.
  Planes append(const Planes& inputs);
  // For `count` more tokens a row, before they are appended.
  Mask mask(int64_t count) const;

  // Only before the ring has turned; false and nothing changed otherwise.
  bool trim(int row, int64_t count);
  void merge(const std::vector<const KvRingRows*>& parts);
  void filter(const std::vector<int>& keep);
  // The row alone, without padding; a copy. Its columns lie where they would had it never had
  // others beside it: the order in which attention sums them is part of its bits.
  KvRingRows extract(int row) const;
  // Becomes a row of `offset` tokens that holds its last ones: in temporal order, or `rotated`, the
  // oldest of them at column `index`.
  void adopt(Planes planes, int64_t offset, int64_t index, bool rotated);
  // One row that was never padded: as mlx-lm's RotatingKVCache has it.
  bool is_lone() const { return alone() && total_ == offsets_[0]; }
  void replace_planes(Planes planes) { planes_ = std::move(planes); }

  void prepare_prefill(const PrefillPadding& padding);
  void finalize_prefill();

 private:
  bool alone() const { return rows() == 1 && left_pad_[0] <= 0 && prefill_ends_.empty(); }
  Planes append_one(const Planes& inputs);
  Planes append_many(const Planes& inputs);
  Planes temporal() const;
  KvRingRows extract_temporal(int row) const;
  int64_t turn_after_one(int row) const;
  void roll_right_padding();

  int64_t size_;
  Planes planes_;
  std::vector<int64_t> offsets_, left_pad_;
  // The index of each row's ring had it been alone; 0 while that has not turned since the last
  // longer append.
  std::vector<int64_t> turns_;
  int64_t index_ = 0;
  int64_t total_ = 0;  // mlx-lm's _offset
  bool rotated_ = false;
  std::vector<int64_t> prefill_ends_;
};

}  // namespace mantou::on_mlx
