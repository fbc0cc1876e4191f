#include "backends/mlx/layer_state.h"

#include <algorithm>
#include <limits>

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
  static Mask mask(const Rows& rows, int64_t count, bool as_array) {
    return rows.mask(count, 0, as_array);
  }
  static std::vector<int64_t> position(const Rows& rows) { return rows.offsets(); }
  static Planes planes(const Rows& rows) { return rows.planes(); }
  static void replace(Rows& rows, Planes planes) {
    rows.restore(std::move(planes), rows.offsets(), rows.left_pad());
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
  static Mask mask(const Rows& rows, int64_t count, bool) { return rows.mask(count); }
  static std::vector<int64_t> position(const Rows& rows) {
    return {rows.size(), rows.index(), rows.total(), rows.rotated()};
  }
  static Planes planes(const Rows& rows) { return rows.planes(); }
  static void replace(Rows& rows, Planes planes) { rows.replace_planes(std::move(planes)); }
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
    KvCodec codec;
    int64_t minimum = 0;  // tokens a row held when it was quantized late: no way back beyond
    Rows packed;
  };
  struct Place {
    size_t pack;
    int index;
  };
  // A pack of the open step, and what it was before it.
  struct Active {
    size_t pack;
    std::vector<int> places;     // of its rows in the step
    std::optional<Rows> before;  // until seal()
    std::vector<int64_t> offsets;
  };

 public:
  explicit PackedState(const StateSpec& spec) : spec_(spec) {}

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
    const bool quantized = spec_.quant.bits > 0 && tokens >= spec_.quant.start;
    const double bits = quantized ? spec_.quant.bits + 2.0 * 16 / spec_.quant.group : 16;
    return size_t(double(Kind::columns(spec_, tokens)) * 2 * spec_.kv_heads * spec_.head_dim *
                  bits / 8);
  }
  int64_t append_limit(int row) const override {
    const Place at = find(row);
    const bool waits = spec_.quant.bits > 0 && packs_[at.pack].codec.plain();
    const int64_t left = spec_.quant.start - tokens(row);
    return waits && left > 0 ? left : std::numeric_limits<int64_t>::max();
  }

  void add_row() override {
    Pack pack{{rows_}, {}, 0, Kind::make(spec_)};
    pack.packed.add_row();
    packs_.push_back(std::move(pack));
    rows_++;
  }

  void join(LayerState&& other) override {
    auto& from = static_cast<PackedState&>(other);
    if (!(from.spec_ == spec_))
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
    const Pack& from = packs_[at.pack];
    auto one = std::make_unique<PackedState>(spec_);
    one->packs_.push_back({{0}, from.codec, from.minimum, Kind::one(from.packed, at.index)});
    one->rows_ = 1;
    return one;
  }

  bool trim(int row, int64_t drop) override {
    const Place at = find(row);
    Pack& pack = packs_[at.pack];
    if (tokens(row) - drop < pack.minimum) return false;
    return Kind::trim(pack.packed, at.index, drop);
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
    arrange(rows);
    for (Active& active : active_) {
      const Rows& packed = packs_[active.pack].packed;
      active.before = packed;
      active.offsets = packed.offsets();
    }
  }
  void commit_step() override { close(); }
  void abort_step() override {
    for (Active& active : active_) {
      Rows& packed = packs_[active.pack].packed;
      if (active.before)
        packed = *active.before;
      else if (!Kind::go_back(packed, active.offsets))
        lost_ = true;
    }
    close();
  }
  void seal() override {
    for (Active& active : active_) active.before.reset();
  }

  void append(const array& keys, const array& values, bool as_array, MaskCache& masks) override {
    parts_.clear();
    for (const Active& active : active_) {
      Pack& pack = packs_[active.pack];
      KvPart part{
          active.places, pack.codec, mask_of(pack.packed, keys.shape(2), as_array, masks), {}};
      const bool all = active_.size() == 1;
      part.planes = Kind::append(
          pack.packed, pack.codec.encode(all ? keys : with_rows(keys, active.places),
                                         all ? values : with_rows(values, active.places)));
      parts_.push_back(std::move(part));
    }
  }
  const std::vector<KvPart>& parts() const override { return parts_; }
  Planes planes() const override {
    Planes all;
    for (const Active& active : active_)
      for (const array& plane : packs_[active.pack].packed.planes()) all.push_back(plane);
    return all;
  }

 private:
  void close() {
    active_.clear();
    parts_.clear();
  }

  Place find(int row) const {
    for (size_t p = 0; p < packs_.size(); p++)
      for (size_t i = 0; i < packs_[p].rows.size(); i++)
        if (packs_[p].rows[i] == row) return {p, int(i)};
    fail(ErrorCode::kInternal, "row {} of {}", row, rows_);
  }

  static const Mask& mask_of(const Rows& rows, int64_t count, bool as_array, MaskCache& masks) {
    std::vector<int64_t> key = Kind::position(rows);
    key.insert(key.end(), rows.left_pad().begin(), rows.left_pad().end());
    key.insert(key.end(), {count, int64_t{as_array}});
    auto at = masks.find(key);
    if (at == masks.end()) at = masks.emplace(key, Kind::mask(rows, count, as_array)).first;
    return at->second;
  }

  // The pack without the rows that `leaves` names.
  template <class Leaves>
  static Pack without(const Pack& pack, const Leaves& leaves) {
    Pack rest{{}, pack.codec, pack.minimum, pack.packed};
    std::vector<int> indices;
    for (size_t i = 0; i < pack.rows.size(); i++) {
      if (leaves(pack.rows[i])) continue;
      rest.rows.push_back(pack.rows[i]);
      indices.push_back(int(i));
    }
    if (rest.rows.size() != pack.rows.size()) rest.packed.filter(indices);
    return rest;
  }

  // Makes packs of exactly these rows in this order: one, or one of each codec.
  void arrange(const std::vector<int>& rows) {
    active_.clear();
    convert_due_rows(rows);
    std::vector<int> groups[2];  // places of the plain and of the quantized rows
    for (size_t i = 0; i < rows.size(); i++)
      groups[packs_[find(rows[i]).pack].codec.plain() ? 0 : 1].push_back(int(i));
    for (const std::vector<int>& places : groups) {
      if (places.empty()) continue;
      std::vector<int> group;
      for (const int place : places) group.push_back(rows[size_t(place)]);
      pack_together(group);
    }
    for (const std::vector<int>& places : groups)
      if (!places.empty())
        active_.push_back({find(rows[size_t(places[0])]).pack, places, std::nullopt, {}});
  }

  // A pack of exactly these rows in this order, which share a codec.
  void pack_together(const std::vector<int>& rows) {
    for (const Pack& pack : packs_)
      if (pack.rows == rows) return;
    std::vector<Rows> ones;
    Pack joined{rows, packs_[find(rows[0]).pack].codec, 0, Kind::make(spec_)};
    for (const int row : rows) {
      const Place at = find(row);
      ones.push_back(Kind::one(packs_[at.pack].packed, at.index));
      joined.minimum = std::max(joined.minimum, packs_[at.pack].minimum);
    }
    std::vector<const Rows*> parts;
    for (const Rows& one : ones) parts.push_back(&one);
    joined.packed.merge(parts);
    std::vector<Pack> next;
    for (const Pack& pack : packs_) {
      Pack rest = without(
          pack, [&](int row) { return std::find(rows.begin(), rows.end(), row) != rows.end(); });
      if (!rest.rows.empty()) next.push_back(std::move(rest));
    }
    next.push_back(std::move(joined));
    packs_ = std::move(next);
  }

  bool is_due(int64_t tokens) const { return tokens >= std::max<int64_t>(1, spec_.quant.start); }

  // Quantizes those of the step's rows that have come so far, in packs of their own.
  void convert_due_rows(const std::vector<int>& rows) {
    if (spec_.quant.bits == 0) return;
    const auto due = [&](int row) {
      return std::find(rows.begin(), rows.end(), row) != rows.end() && is_due(tokens(row));
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

  // Computed at once, so that one layer's plain and quantized planes exist together and no more.
  void convert(Pack& pack) {
    const KvCodec codec{spec_.quant.bits, spec_.quant.group};
    Planes planes = codec.encode(pack.packed.planes()[0], pack.packed.planes()[1]);
    evaluate(planes);
    Kind::replace(pack.packed, std::move(planes));
    pack.codec = codec;
    for (const int64_t offset : pack.packed.offsets())
      if (spec_.quant.start > 0) pack.minimum = std::max(pack.minimum, offset);
    mx::clear_cache();
  }

  StateSpec spec_;
  int rows_ = 0;
  std::vector<Pack> packs_;
  std::vector<Active> active_;  // of the open step
  std::vector<KvPart> parts_;
  bool lost_ = false;
};

}  // namespace

std::unique_ptr<MlxLayerState> make_layer_state(const StateSpec& spec) {
  if (spec.quant.bits > 0 && spec.head_dim % spec.quant.group != 0)
    fail_param(ErrorCode::kUnsupported, "kv_group_size",
               "heads of {} dimensions have no groups of {} for a quantized KV cache",
               spec.head_dim, spec.quant.group);
  if (spec.window > 0) return std::make_unique<PackedState<RingRows>>(spec);
  return std::make_unique<PackedState<FullRows>>(spec);
}

}  // namespace mantou::on_mlx
