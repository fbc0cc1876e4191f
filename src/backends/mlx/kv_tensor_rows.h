// Rows of one layer's cache in shared planes, aligned by padding on the left: positions and
// membership of every packed form of keys and values.
//
// A plane is [rows, heads, columns, fields]; planes differ in heads, fields and type (a plain cache
// has two, keys and values; a quantized one six). Row r holds its tokens in columns
// [left_pad[r], left_pad[r] + offsets[r]) of every plane; what lies outside is never read. A codec
// makes the planes' contents; nothing here encodes or decodes. New planes are complete before old
// ones are dropped. Engine thread.
#pragma once

#include <variant>
#include <vector>

#include "backends/mlx/planes.h"

namespace mantou::on_mlx {

// A mask as mx::fast::scaled_dot_product_attention takes it: none, "causal", or an array.
struct Mask {
  std::string mode;
  std::optional<array> value;  // bool, [L, columns] or [rows, 1, L, columns]
};

// Positions for apply_rope: one for all rows, or one each.
using RopeOffset = std::variant<int, array>;
RopeOffset rope_offset(const std::vector<int64_t>& offsets);

// Tokens of a padded prompt chunk, row by row: `lengths` are real, `left` and `right` are padding.
struct PrefillPadding {
  std::vector<int64_t> lengths, left, right;  // left, right: empty for none
};

class KvTensorRows {
 public:
  int rows() const { return int(offsets_.size()); }
  const std::vector<int64_t>& offsets() const { return offsets_; }    // tokens of each row
  const std::vector<int64_t>& left_pad() const { return left_pad_; }  // columns before them
  const Planes& planes() const { return planes_; }
  int64_t end(int row) const { return offsets_[size_t(row)] + left_pad_[size_t(row)]; }
  int64_t width() const;  // columns in use: the largest end
  double bytes_per_token() const;

  void add_row();  // empty, at the end

  // Appends inputs[plane] [rows, heads, N, fields] to every row. Rows that end at one column take
  // the new ones together, others each at its own end. Planes grow by multiples of 256 columns.
  void append(const Planes& inputs);
  // The columns in use of every plane.
  Planes read() const;
  Planes capture() const { return planes_; }
  void restore(Planes planes, std::vector<int64_t> offsets, std::vector<int64_t> left_pad);

  void trim(int64_t count);                                   // of every row
  void trim(int row, int64_t count);                          // of one
  void merge(const std::vector<const KvTensorRows*>& parts);  // becomes their rows, in order
  // The same tokens behind other padding. Padding never enters a codec.
  void align(const std::vector<int64_t>& left_pad);
  // These rows in this order; padding that all of them share is dropped.
  void filter(const std::vector<int>& keep);
  // A row's tokens, copied, so that the shared planes can be released; no planes when it is empty.
  Planes extract(int row) const;

  // Speculation: what is appended in a round is kept up to `keep` tokens of each row.
  void begin_round() { before_round_ = offsets_; }
  void commit_round() { before_round_.clear(); }
  void rollback_round(const std::vector<int64_t>& keep);
  bool in_round() const { return !before_round_.empty(); }

  void prepare_prefill(const PrefillPadding& padding);
  // Moves padding on the right to the left.
  void finalize_prefill();
  bool is_padded_right() const { return !prefill_ends_.empty(); }

  // For `count` more tokens a row, before they are appended. `as_array`: never "causal".
  Mask mask(int64_t count, int64_t window, bool as_array = false) const;

  // Which columns of each row are valid, prompt padding aside.
  struct Validity {
    std::vector<int64_t> offsets, starts, ends;
  };
  Validity validity() const;

 private:
  bool aligned() const;  // no padding and the same length everywhere
  bool ends_together() const;
  void clear();

  Planes planes_;
  std::vector<int64_t> offsets_, left_pad_;
  std::vector<int64_t> before_round_;
  std::vector<int64_t> prefill_ends_;  // of the offsets, while padding on the right is pending
};

}  // namespace mantou::on_mlx
