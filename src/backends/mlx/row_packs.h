// The packs of a layer's rows: which rows share planes, and how that changes with membership, with
// the rows of a step, and when rows are quantized. Rows of a pack are stored alike. Engine thread.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "backends/mlx/kv_codec.h"
#include "backends/mlx/row_kinds.h"
#include "base/error.h"

namespace mantou::on_mlx {

template <class Kind>
class RowPacks {
 public:
  using Rows = typename Kind::Rows;
  struct Pack {
    std::vector<int> rows;  // their numbers in the state
    KvCodec codec;
    // Tokens that each row held when it was quantized late: no way back beyond.
    std::vector<int64_t> minimums;
    Rows packed;
  };
  struct Place {
    size_t pack;
    int index;
  };
  // Rows of a step that are one pack.
  struct Group {
    size_t pack;              // its number until packs change
    std::vector<int> places;  // of its rows in the step
  };

  explicit RowPacks(const StateSpec& spec) : spec_(spec) {}

  int rows() const { return rows_; }
  Pack& pack(size_t number) { return packs_[number]; }
  const Pack& pack(size_t number) const { return packs_[number]; }
  Place find(int row) const {
    for (size_t p = 0; p < packs_.size(); p++)
      for (size_t i = 0; i < packs_[p].rows.size(); i++)
        if (packs_[p].rows[i] == row) return {p, int(i)};
    fail(ErrorCode::kInternal, "KV state: row {} of {} does not exist", row, rows_);
  }
  const Pack& pack_of(int row) const { return packs_[find(row).pack]; }
  int64_t minimum(int row) const {
    const Place at = find(row);
    return packs_[at.pack].minimums[size_t(at.index)];
  }
  int64_t tokens(int row) const {
    const Place at = find(row);
    return packs_[at.pack].packed.offsets()[size_t(at.index)];
  }
  // The row as one of its own, number 0; shares the planes where it can.
  Pack lone(int row) const {
    const Place at = find(row);
    const Pack& from = packs_[at.pack];
    return {{0}, from.codec, {from.minimums[size_t(at.index)]}, Kind::one(from.packed, at.index)};
  }

  void add_row() { add(empty()); }
  // A pack of one row, which becomes the last.
  void add(Pack one) {
    one.rows = {rows_++};
    packs_.push_back(std::move(one));
  }
  // The rows of `other`, which has none then.
  void join(RowPacks& other) {
    for (Pack& pack : other.packs_) {
      for (int& row : pack.rows) row += rows_;
      packs_.push_back(std::move(pack));
    }
    rows_ += other.rows_;
    other.packs_.clear();
    other.rows_ = 0;
  }
  // These rows in this order, no doubles.
  void keep(std::span<const int> kept) {
    std::vector<int> number(size_t(rows_), -1);
    for (size_t i = 0; i < kept.size(); i++) {
      find(kept[i]);
      int& of = number[size_t(kept[i])];
      if (of >= 0) fail(ErrorCode::kInternal, "KV state: row {} kept twice", kept[i]);
      of = int(i);
    }
    remove([&](int row) { return number[size_t(row)] < 0; });
    for (Pack& pack : packs_)
      for (int& row : pack.rows) row = number[size_t(row)];
    rows_ = int(kept.size());
  }
  // A row without a token, as a pack.
  Pack empty() const {
    Pack empty{{0}, {}, {0}, Kind::make(spec_)};
    empty.packed.add_row();
    return empty;
  }
  // A pack of one row takes the place of row `row`.
  void replace(int row, Pack one) {
    remove([&](int each) { return each == row; });
    one.rows = {row};
    packs_.push_back(std::move(one));
  }

  // Makes packs of exactly these rows in this order: one, or one of each codec.
  std::vector<Group> arrange(const std::vector<int>& rows) {
    std::vector<int> places[2];  // of the plain and of the quantized rows
    for (size_t i = 0; i < rows.size(); i++)
      places[pack_of(rows[i]).codec.plain() ? 0 : 1].push_back(int(i));
    for (const std::vector<int>& group : places) {
      std::vector<int> together;
      for (const int place : group) together.push_back(rows[size_t(place)]);
      if (!together.empty()) pack_together(together);
    }
    std::vector<Group> groups;
    for (std::vector<int>& group : places) {
      if (group.empty()) continue;
      const size_t pack = find(rows[size_t(group[0])]).pack;
      groups.push_back({pack, std::move(group)});
    }
    return groups;
  }

  // Quantizes those of `rows` that hold enough tokens, in packs of their own.
  void convert_due(const std::vector<int>& rows) {
    if (spec_.quant.bits == 0) return;
    const int64_t enough = std::max<int64_t>(1, spec_.quant.start);
    const auto due = [&](int row) {
      return std::find(rows.begin(), rows.end(), row) != rows.end() && tokens(row) >= enough;
    };
    for (size_t p = 0; p < packs_.size(); p++) {
      if (!packs_[p].codec.plain()) continue;
      Pack waiting = without(packs_[p], due);
      if (waiting.rows.size() == packs_[p].rows.size()) continue;
      if (!waiting.rows.empty()) {
        packs_.push_back(without(packs_[p], [&](int row) { return !due(row); }));
        packs_[p] = std::move(waiting);
        continue;  // the new pack comes later in this loop
      }
      convert(packs_[p]);
    }
  }

 private:
  // The pack without the rows that `leaves` names.
  template <class Leaves>
  static Pack without(const Pack& pack, const Leaves& leaves) {
    Pack rest{{}, pack.codec, {}, pack.packed};
    std::vector<int> indices;
    for (size_t i = 0; i < pack.rows.size(); i++) {
      if (leaves(pack.rows[i])) continue;
      rest.rows.push_back(pack.rows[i]);
      rest.minimums.push_back(pack.minimums[i]);
      indices.push_back(int(i));
    }
    if (rest.rows.size() != pack.rows.size()) rest.packed.filter(indices);
    return rest;
  }

  template <class Leaves>
  void remove(const Leaves& leaves) {
    std::vector<Pack> next;
    for (const Pack& pack : packs_) {
      Pack rest = without(pack, leaves);
      if (!rest.rows.empty()) next.push_back(std::move(rest));
    }
    packs_ = std::move(next);
  }

  // A pack of exactly these rows in this order, which share a codec.
  void pack_together(const std::vector<int>& rows) {
    for (const Pack& pack : packs_)
      if (pack.rows == rows) return;
    std::vector<Pack> ones;
    std::vector<const Rows*> parts;
    Pack joined{rows, pack_of(rows[0]).codec, {}, Kind::make(spec_)};
    for (const int row : rows) {
      ones.push_back(lone(row));
      joined.minimums.push_back(ones.back().minimums[0]);
    }
    for (const Pack& one : ones) parts.push_back(&one.packed);
    joined.packed.merge(parts);
    remove([&](int row) { return std::find(rows.begin(), rows.end(), row) != rows.end(); });
    packs_.push_back(std::move(joined));
  }

  // Computed at once, so that one layer's plain and quantized planes exist together and no more.
  void convert(Pack& pack) {
    const KvCodec codec{spec_.quant.bits, spec_.quant.group};
    Planes planes = codec.encode(pack.packed.planes()[0], pack.packed.planes()[1]);
    evaluate(planes);
    Kind::replace(pack.packed, std::move(planes));
    pack.codec = codec;
    if (spec_.quant.start > 0) pack.minimums = pack.packed.offsets();
    mx::clear_cache();
  }

  StateSpec spec_;
  int rows_ = 0;
  std::vector<Pack> packs_;
};

}  // namespace mantou::on_mlx
