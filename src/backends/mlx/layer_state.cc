#include "backends/mlx/layer_state.h"

#include <algorithm>
#include <limits>

#include "backends/mlx/row_packs.h"
#include "backends/mlx/row_snapshot.h"
#include "base/error.h"

namespace mantou::on_mlx {
namespace {

template <class Kind>
class PackedState final : public MlxLayerState {
  using Packs = RowPacks<Kind>;
  using Pack = typename Packs::Pack;
  using Rows = typename Kind::Rows;

  // A pack of the open step, and what it was before it.
  struct Active {
    typename Packs::Group group;
    std::optional<Rows> before;  // until seal()
    std::vector<int64_t> offsets;
    Planes appended;  // in a round
  };
  // Of a kind that cannot go back: a row as it was, and what was appended since, in steps.
  struct Way {
    Pack before;
    std::vector<Planes> appended;
  };
  struct Round {
    std::vector<int64_t> tokens;  // of each row when it began
    std::vector<Way> ways;        // of each row, or none
  };

 public:
  explicit PackedState(const StateSpec& spec) : spec_(spec), packs_(spec) {}

  const StateSpec& spec() const override { return spec_; }
  int rows() const override { return packs_.rows(); }
  int64_t tokens(int row) const override { return packs_.tokens(row); }
  size_t bytes(int row) const override {
    const Pack& pack = packs_.pack_of(row);
    size_t bytes = 0;
    for (const array& plane : pack.packed.planes()) bytes += plane.nbytes();
    return bytes / pack.rows.size();
  }
  size_t projected_bytes(int64_t tokens) const override {
    const double plain = spec_.type == KvType::kF32 ? 32 : 16;  // of scales and biases too
    const auto size_of = [&](double bits, int64_t count) {
      const double elements = 2.0 * spec_.kv_heads * spec_.head_dim;
      return size_t(double(Kind::columns(spec_, count)) * elements * bits / 8);
    };
    const double quantized = spec_.quant.bits + 2 * plain / spec_.quant.group;
    return spec_.quant.most_bytes(
        tokens, [&](int64_t count) { return size_of(plain, count); },
        [&](int64_t count) { return size_of(quantized, count); });
  }
  int64_t append_limit(int row) const override {
    const bool waits = spec_.quant.bits > 0 && packs_.pack_of(row).codec.plain();
    const int64_t left = spec_.quant.start - tokens(row);
    return waits && left > 0 ? left : std::numeric_limits<int64_t>::max();
  }

  void add_row() override {
    require_idle("add_row");
    packs_.add_row();
  }

  void join(LayerState&& other) override {
    require_idle("join");
    auto* joining = dynamic_cast<PackedState*>(&other);
    if (joining == nullptr || joining == this || !(joining->spec_ == spec_))
      fail(ErrorCode::kInternal, "KV state {} cannot take the rows of {}", spec_.signature(),
           joining == this ? "itself" : other.spec().signature());
    joining->require_idle("join");
    packs_.join(joining->packs_);
  }

  void keep(std::span<const int> kept) override {
    require_idle("keep");
    packs_.keep(kept);
  }

  std::unique_ptr<LayerState> fork(int row) const override {
    require_idle("fork");
    auto one = std::make_unique<PackedState>(spec_);
    one->packs_.add(packs_.lone(row));
    return one;
  }

  bool trim(int row, int64_t drop) override {
    require_idle("trim");
    if (drop < 0 || drop > tokens(row))
      fail(ErrorCode::kInternal, "KV state: cannot drop {} of {} tokens", drop, tokens(row));
    if (drop == 0) return true;
    if (tokens(row) - drop < packs_.minimum(row)) return false;
    return take_back(row, drop);
  }

  void begin_step(const StepLayout& layout) override {
    require_no_step("begin_step");
    std::vector<int> rows;
    for (const StepRow& row : layout.rows) {
      if (row.count != layout.rows[0].count)
        fail(ErrorCode::kInternal, "mlx: rows of a step must forward equally many tokens");
      if (tokens(row.state_row) != row.position)
        fail(ErrorCode::kInternal, "row {} holds {} tokens, the step starts at {}", row.state_row,
             tokens(row.state_row), row.position);
      rows.push_back(row.state_row);
    }
    if (!round_) packs_.convert_due(rows);
    for (auto& group : packs_.arrange(rows)) {
      const Rows& packed = packs_.pack(group.pack).packed;
      active_.push_back({std::move(group), packed, packed.offsets(), {}});
    }
    in_step_ = true;
  }
  void commit_step() override {
    require_step("commit_step");
    for (const Active& active : active_) note_appended(active);
    close();
  }
  // Rows of which nothing is left that could be gone back to are empty afterwards.
  void abort_step() override {
    require_step("abort_step");
    std::vector<int> lost;
    for (Active& active : active_) {
      Pack& pack = packs_.pack(active.group.pack);
      if (active.before)
        pack.packed = *active.before;
      else if (!Kind::go_back(pack.packed, active.offsets))
        lost.insert(lost.end(), pack.rows.begin(), pack.rows.end());
    }
    close();
    for (const int row : lost) packs_.replace(row, packs_.empty());
  }
  void seal() override {
    for (Active& active : active_) active.before.reset();
  }

  void append(const array& keys, const array& values, bool as_array, MaskCache& masks) override {
    parts_.clear();
    for (Active& active : active_) {
      Pack& pack = packs_.pack(active.group.pack);
      const std::vector<int>& places = active.group.places;
      KvPart part{places, pack.codec, mask_of(pack.packed, keys.shape(2), as_array, masks), {}};
      const bool all = active_.size() == 1;
      const Planes inputs = pack.codec.encode(all ? keys : with_rows(keys, places),
                                              all ? values : with_rows(values, places));
      if (round_ && !Kind::kGoesBack) active.appended = inputs;
      part.planes = Kind::append(pack.packed, inputs);
      parts_.push_back(std::move(part));
    }
  }
  const std::vector<KvPart>& parts() const override { return parts_; }

  void begin_round() override {
    require_idle("begin_round");
    Round round;
    for (int row = 0; row < rows(); row++) {
      round.tokens.push_back(tokens(row));
      if (!Kind::kGoesBack) round.ways.push_back({packs_.lone(row), {}});
    }
    round_ = std::move(round);
  }
  void end_round(std::span<const int64_t> kept) override {
    require_no_step("end_round");
    bool fits = round_ && kept.size() == size_t(rows());
    for (size_t r = 0; fits && r < kept.size(); r++)
      fits = kept[r] >= 0 && kept[r] <= tokens(int(r)) - round_->tokens[r];
    if (!fits) fail(ErrorCode::kInternal, "KV state: the end of a round that was not so begun");
    for (int row = 0; row < rows(); row++) {
      const int64_t left = round_->tokens[size_t(row)] + kept[size_t(row)];
      if (left == tokens(row)) continue;
      if (Kind::kGoesBack)
        take_back(row, tokens(row) - left);
      else
        replay(row, round_->ways[size_t(row)], kept[size_t(row)]);
    }
    round_.reset();
  }

  Snapshot snapshot(int row) const override {
    require_idle("snapshot");
    Pack one = packs_.lone(row);
    return save_row(spec_, {tokens(row), one.minimums[0], one.codec, Kind::save(one.packed)});
  }
  void restore(int row, const Snapshot& saved) override {
    require_idle("restore");
    packs_.find(row);
    const SnapshotReader reader(saved, kRowLayout, spec_.signature());
    const int64_t columns = Kind::columns_of_image(spec_, reader, saved_tokens(reader));
    SavedRow loaded = load_row(spec_, saved, reader, columns);
    packs_.replace(row, {{},
                         loaded.codec,
                         {loaded.minimum},
                         Kind::load(spec_, reader, std::move(loaded.image.planes), loaded.tokens)});
  }

  Planes planes() const override {
    Planes all;
    for (const Active& active : active_)
      for (const array& plane : packs_.pack(active.group.pack).packed.planes())
        all.push_back(plane);
    return all;
  }

 private:
  void require_no_step(const char* operation) const {
    if (in_step_) fail(ErrorCode::kInternal, "KV state: {} inside a step", operation);
  }
  void require_step(const char* operation) const {
    if (!in_step_) fail(ErrorCode::kInternal, "KV state: {} outside a step", operation);
  }
  void require_idle(const char* operation) const {
    require_no_step(operation);
    if (round_) fail(ErrorCode::kInternal, "KV state: {} inside a round", operation);
  }

  void close() {
    in_step_ = false;
    active_.clear();
    parts_.clear();
  }

  bool take_back(int row, int64_t count) {
    const typename Packs::Place at = packs_.find(row);
    return Kind::trim(packs_.pack(at.pack).packed, at.index, count);
  }

  // A row of the round as it was, with the first `kept` of the tokens that came then.
  void replay(int row, Way& way, int64_t kept) {
    for (Planes& inputs : way.appended) {
      const int64_t count = std::min<int64_t>(kept, inputs[0].shape(2));
      if (count == 0) break;
      for (array& input : inputs) input = columns_of(input, 0, count);
      Kind::append(way.before.packed, inputs);
      kept -= count;
    }
    packs_.replace(row, std::move(way.before));
  }

  void note_appended(const Active& active) {
    if (!round_ || active.appended.empty()) return;
    const std::vector<int>& rows = packs_.pack(active.group.pack).rows;
    for (size_t i = 0; i < rows.size(); i++) {
      Planes inputs;
      for (const array& plane : active.appended) inputs.push_back(with_rows(plane, {int(i)}));
      round_->ways[size_t(rows[i])].appended.push_back(std::move(inputs));
    }
  }

  const Mask& mask_of(const Rows& rows, int64_t count, bool as_array, MaskCache& masks) const {
    std::vector<int64_t> key{spec_.window};
    const std::vector<int64_t> position = Kind::position(rows);
    key.insert(key.end(), position.begin(), position.end());
    key.insert(key.end(), rows.left_pad().begin(), rows.left_pad().end());
    key.insert(key.end(), {count, int64_t{as_array}});
    auto at = masks.find(key);
    if (at == masks.end()) at = masks.emplace(key, Kind::mask(rows, count, as_array)).first;
    return at->second;
  }

  StateSpec spec_;
  Packs packs_;
  std::vector<Active> active_;  // of the open step
  std::vector<KvPart> parts_;
  bool in_step_ = false;
  std::optional<Round> round_;
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
