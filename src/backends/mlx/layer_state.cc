#include "backends/mlx/layer_state.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace mantou::on_mlx {
namespace {

// What a pack needs to know of KvTensorRows and KvRingRows.
struct FullRows {
  using Rows = KvTensorRows;
  static Rows make(const StateSpec&) { return {}; }
  static Rows one(const Rows& rows, int row) {
    Rows out;
    if (rows.rows() == 1 && rows.left_pad()[0] == 0) return rows;  // shares the planes
    out.restore(rows.extract(row), {rows.offsets()[size_t(row)]}, {0});
    return out;
  }
  static bool trim(Rows& rows, int row, int64_t count) {
    rows.trim(row, count);
    return true;
  }
  static Planes append(Rows& rows, const Planes& inputs) {
    rows.append(inputs);
    return rows.read();
  }
  static Mask mask(const Rows& rows, const StateSpec& spec, int64_t count, bool as_array) {
    return rows.mask(count, spec.window, as_array);
  }
  static int64_t columns(const StateSpec&, int64_t tokens) { return (tokens + 255) / 256 * 256; }
  // Positions go back, planes stay: what was written behind them is not read.
  static bool go_back(Rows& rows, const std::vector<int64_t>& offsets) {
    rows.restore(rows.planes(), offsets, rows.left_pad());
    return true;
  }
};

struct RingRows {
  using Rows = KvRingRows;
  static Rows make(const StateSpec& spec) { return Rows(spec.window); }
  static Rows one(const Rows& rows, int row) { return rows.extract(row); }
  static bool trim(Rows& rows, int row, int64_t count) { return rows.trim(row, count); }
  static Planes append(Rows& rows, const Planes& inputs) { return rows.append(inputs); }
  static Mask mask(const Rows& rows, const StateSpec&, int64_t count, bool) {
    return rows.mask(count);
  }
  static int64_t columns(const StateSpec& spec, int64_t tokens) {
    return std::min(spec.window, (tokens + 255) / 256 * 256);
  }
  static bool go_back(Rows&, const std::vector<int64_t>&) { return false; }
};

size_t bytes_of(const Planes& planes) {
  size_t bytes = 0;
  for (const array& plane : planes) bytes += plane.nbytes();
  return bytes;
}

template <class Kind>
class PackedState final : public MlxLayerState {
  using Rows = typename Kind::Rows;
  struct Pack {
    std::vector<int> rows;  // their numbers in this state
    Rows packed;
  };
  struct Place {
    size_t pack;
    int index;
  };

 public:
  PackedState(const StateSpec& spec, KvCodec codec) : MlxLayerState(codec), spec_(spec) {}

  const StateSpec& spec() const override { return spec_; }
  int rows() const override { return rows_; }
  int64_t tokens(int row) const override {
    if (lost_) fail(ErrorCode::kInternal, "mlx: the state was lost in a step that failed");
    const Place at = find(row);
    return packs_[at.pack].packed.offsets()[size_t(at.index)];
  }
  size_t bytes(int row) const override {
    const Pack& pack = packs_[find(row).pack];
    return bytes_of(pack.packed.planes()) / pack.rows.size();
  }
  size_t projected_bytes(int64_t tokens) const override {
    const size_t per_value = codec_.plain() ? 2 * 16 : size_t(codec_.bits + 2 * 16 / codec_.group);
    return size_t(Kind::columns(spec_, tokens)) * size_t(spec_.kv_heads) * size_t(spec_.head_dim) *
           per_value / 8;
  }

  void add_row() override {
    Pack pack{{rows_}, Kind::make(spec_)};
    pack.packed.add_row();
    packs_.push_back(std::move(pack));
    rows_++;
  }

  void join(LayerState&& other) override {
    auto& from = static_cast<PackedState&>(other);
    if (!(from.spec_ == spec_) || !(from.codec_ == codec_))
      fail(ErrorCode::kInternal, "{} cannot join {}", from.spec_.signature(), spec_.signature());
    for (Pack& pack : from.packs_) {
      for (int& row : pack.rows) row += rows_;
      packs_.push_back(std::move(pack));
    }
    rows_ += from.rows_;
    from.packs_.clear();
    from.rows_ = 0;
  }

  void keep(std::span<const int> kept) override {
    std::vector<int> number(size_t(rows_), -1);
    for (size_t i = 0; i < kept.size(); i++) number[size_t(kept[i])] = int(i);
    std::vector<Pack> next;
    for (const Pack& pack : packs_) {
      Pack rest = without(pack, [&](int row) { return number[size_t(row)] < 0; });
      for (int& row : rest.rows) row = number[size_t(row)];
      if (!rest.rows.empty()) next.push_back(std::move(rest));
    }
    packs_ = std::move(next);
    rows_ = int(kept.size());
  }

  std::unique_ptr<LayerState> fork(int row) const override {
    const Place at = find(row);
    auto one = std::make_unique<PackedState>(spec_, codec_);
    one->packs_.push_back({{0}, Kind::one(packs_[at.pack].packed, at.index)});
    one->rows_ = 1;
    return one;
  }

  bool trim(int row, int64_t drop) override {
    const Place at = find(row);
    return Kind::trim(packs_[at.pack].packed, at.index, drop);
  }

  void begin_step(const StepLayout& layout) override {
    std::vector<int> rows;
    for (const StepRow& row : layout.rows) {
      if (row.count != layout.rows[0].count)
        fail(ErrorCode::kInternal, "mlx: rows of a step must forward equally many tokens");
      if (tokens(row.state_row) != row.position)
        fail(ErrorCode::kInternal, "row {} holds {} tokens, the step starts at {}", row.state_row,
             tokens(row.state_row), row.position);
      rows.push_back(row.state_row);
    }
    active_ = arrange(rows);
    before_ = packs_[active_].packed;
    offsets_ = before_->offsets();
  }
  void commit_step() override { before_.reset(); }
  void abort_step() override {
    Rows& rows = packs_[active_].packed;
    if (before_)
      rows = *before_;
    else if (!Kind::go_back(rows, offsets_))
      lost_ = true;
    before_.reset();
  }
  void seal() override { before_.reset(); }

  Planes append(const array& keys, const array& values) override {
    return Kind::append(packs_[active_].packed, codec_.encode(keys, values));
  }
  Mask mask(int64_t count, bool as_array) const override {
    return Kind::mask(packs_[active_].packed, spec_, count, as_array);
  }
  const Planes& planes() const override { return packs_[active_].packed.planes(); }

 private:
  Place find(int row) const {
    for (size_t p = 0; p < packs_.size(); p++)
      for (size_t i = 0; i < packs_[p].rows.size(); i++)
        if (packs_[p].rows[i] == row) return {p, int(i)};
    fail(ErrorCode::kInternal, "row {} of {}", row, rows_);
  }

  // The pack without the rows that `leaves` names.
  template <class Leaves>
  static Pack without(const Pack& pack, const Leaves& leaves) {
    Pack rest{{}, pack.packed};
    std::vector<int> indices;
    for (size_t i = 0; i < pack.rows.size(); i++) {
      if (leaves(pack.rows[i])) continue;
      rest.rows.push_back(pack.rows[i]);
      indices.push_back(int(i));
    }
    if (rest.rows.size() != pack.rows.size()) rest.packed.filter(indices);
    return rest;
  }

  // The index of a pack of exactly these rows in this order.
  size_t arrange(const std::vector<int>& rows) {
    for (size_t p = 0; p < packs_.size(); p++)
      if (packs_[p].rows == rows) return p;
    std::vector<Rows> ones;
    for (const int row : rows) {
      const Place at = find(row);
      ones.push_back(Kind::one(packs_[at.pack].packed, at.index));
    }
    std::vector<const Rows*> parts;
    for (const Rows& one : ones) parts.push_back(&one);
    Pack joined{rows, Kind::make(spec_)};
    joined.packed.merge(parts);
    std::vector<Pack> next;
    for (const Pack& pack : packs_) {
      Pack rest = without(
          pack, [&](int row) { return std::find(rows.begin(), rows.end(), row) != rows.end(); });
      if (!rest.rows.empty()) next.push_back(std::move(rest));
    }
    next.push_back(std::move(joined));
    packs_ = std::move(next);
    return packs_.size() - 1;
  }

  StateSpec spec_;
  int rows_ = 0;
  std::vector<Pack> packs_;
  size_t active_ = 0;
  std::optional<Rows> before_;  // of the active pack, until seal()
  std::vector<int64_t> offsets_;
  bool lost_ = false;
};

}  // namespace

std::unique_ptr<MlxLayerState> make_layer_state(const StateSpec& spec, KvCodec codec) {
  if (spec.window > 0) return std::make_unique<PackedState<RingRows>>(spec, codec);
  return std::make_unique<PackedState<FullRows>>(spec, codec);
}

}  // namespace mantou::on_mlx
