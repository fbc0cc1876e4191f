#include "backends/mlx/mlx_backend.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "backends/mlx/attention.h"
#include "backends/mlx/experts.h"
#include "backends/mlx/layer_state.h"
#include "backends/mlx/linear.h"
#include "backends/mlx/pack.h"
#include "backends/mlx/rope.h"
#include "base/error.h"
#include "tensor/own_kv_type.h"

namespace mantou::on_mlx {
namespace {

array normalize(const array& x, const Norm& norm) {
  if (!norm.scale) return mx::fast::rms_norm(x, std::nullopt, norm.eps);
  array scale = array_of(norm.scale);
  if (norm.scale_factor != 1) scale = mx::multiply(scale, scalar(norm.scale_factor, scale));
  if (norm.plus_one) scale = mx::add(scalar(1, scale), scale);
  // One scale for each head: the norm itself has none then.
  const bool per_head = scale.size() != size_t(x.shape(-1));
  const std::optional<array> weight = per_head ? std::nullopt : std::optional(scale);
  const std::optional<array> bias = norm.bias ? std::optional(array_of(*norm.bias)) : std::nullopt;
  array y = norm.kind == NormKind::kRms ? mx::fast::rms_norm(x, weight, norm.eps)
                                        : mx::fast::layer_norm(x, weight, bias, norm.eps);
  if (!per_head) return y;
  return mx::multiply(mx::reshape(scale, {-1, x.shape(-1)}), y);
}

array join(const array& y, const Join& join, const Tensor& residual) {
  array result = join.post ? normalize(y, *join.post) : y;
  if (join.scale != 1) result = mx::multiply(result, scalar(join.scale, result));
  if (!residual) return result;
  if (!join.clip_f16 || result.dtype() != mx::float16) return mx::add(array_of(residual), result);
  const array sum =
      mx::add(mx::astype(array_of(residual), mx::float32), mx::astype(result, mx::float32));
  return mx::astype(mx::clip(sum, array(-65504.0f), array(65504.0f)), mx::float16);
}

struct PackedTable {
  RawTensor raw;  // keeps the stored bytes, and so their address
  Weight weight;
};

// What a step was asked for beyond its states.
struct Found {
  array best;    // arg-max of each request
  array normal;  // 0: its logits hold NaN, or their largest is not finite
};

std::vector<int32_t> tokens_of(const Found& found) {
  std::vector<int32_t> tokens(found.best.size(), -1);
  for (size_t i = 0; i < tokens.size(); i++)
    if (found.normal.data<int32_t>()[i] != 0) tokens[i] = int32_t(found.best.data<uint32_t>()[i]);
  return tokens;
}

class Pending final : public PendingTokens {
 public:
  explicit Pending(Found found) : found_(std::move(found)) {}
  std::vector<int32_t> wait() override {
    evaluate({found_.best, found_.normal});
    return tokens_of(found_);
  }

 private:
  const Found found_;
};

class MlxBackend final : public Backend {
 public:
  explicit MlxBackend(const MlxOptions& options)
      : lanes_(make_lanes(options.threads)),
        ahead_(options.ahead.value_or(mx::default_device() != mx::Device::cpu)) {}

  std::string_view name() const override { return "mlx"; }
  std::string_view numerics_id() const override { return numerics_id_; }
  bool uniform_steps() const override { return true; }
  bool lazy() const override { return true; }
  // The model's own, that of its embeddings.
  std::optional<KvType> own_kv_type() const override { return own_type_.type(); }

  Weight pack(const RawWeight& raw, WeightUse use) override {
    // A table that is also the head's matrix is held once.
    if (table_ && use == WeightUse::kMatrix && table_->raw.bytes.data() == raw.data.bytes.data())
      return table_->weight;
    const auto storage = on_mlx::pack(raw, use);
    if (use != WeightUse::kVector) split(*storage, lanes_);
    const Weight weight(raw.rows, raw.cols, storage);
    if (use == WeightUse::kTable && !table_) table_ = PackedTable{raw.data, weight};
    own_type_.see(raw, use);
    return weight;
  }
  Weight pack_experts(std::span<const RawWeight> experts) override {
    return Weight(experts[0].rows, experts[0].cols, on_mlx::pack_experts(experts));
  }

  std::unique_ptr<LayerState> make_state(const StateSpec& spec) override {
    return make_layer_state(spec);
  }

  void begin_step(const StepLayout& layout) override {
    batch_ = int(layout.rows.size());
    length_ = layout.rows.empty() ? 0 : layout.rows[0].count;
    std::vector<int64_t> positions;
    for (const StepRow& row : layout.rows) {
      if (row.count != length_)
        fail(ErrorCode::kInternal, "mlx: rows of a step must forward equally many tokens");
      positions.push_back(row.position);
    }
    offset_ = rope_offset(positions);
    states_.clear();
    masks_.clear();
    logits_.reset();
    output_.reset();
  }
  void end_step() override {
    states_.clear();
    masks_.clear();
    output_.reset();
    if (length_ > 1) mx::clear_cache();
  }

  Tensor embed(const Weight& table, std::span<const int32_t> tokens, float scale) override {
    const ArrayStorage& w = storage_of(table);
    const array ids = ids_of(tokens);
    array x = mx::take(w.value, ids, 0);
    if (!w.mode.empty())
      x = mx::dequantize(x, mx::take(*w.scales, ids, 0),
                         w.biases ? std::optional(mx::take(*w.biases, ids, 0)) : std::nullopt,
                         w.group, w.bits, w.mode);
    if (scale != 1) x = mx::multiply(x, scalar(scale, x));
    return make_tensor(int64_t(tokens.size()), table.cols(), x);
  }

  std::vector<Tensor> project(const Tensor& x, const Norm* pre,
                              std::span<const Linear* const> linears) override {
    const array n = pre ? normalize(array_of(x), *pre) : array_of(x);
    std::vector<Tensor> out;
    for (const Linear* l : linears)
      out.push_back(make_tensor(x.rows(), l->weight.rows(), linear(n, *l)));
    return out;
  }

  Tensor heads(Tensor x, int head_dim, const Norm* per_head, const Rope* rope) override {
    array v = array_of(x);
    if (v.ndim() == 3 && head_dim != x.cols()) v = split_heads(v, head_dim);
    const bool each =
        per_head && v.ndim() == 4 && per_head->scale && per_head->scale.cols() != head_dim;
    if (each)
      v = mx::swapaxes(normalize(mx::swapaxes(v, 1, 2), *per_head), 1, 2);
    else if (per_head)
      v = normalize(v, *per_head);
    if (rope) v = apply_rope(call_of(*rope), split_heads(v, head_dim), offset_);
    return make_tensor(x.rows(), x.cols(), v);
  }

  Tensor attend(LayerState& state, const Tensor& q, const Tensor& k, const Tensor& v,
                const AttentionSpec& spec) override {
    auto& rows = static_cast<MlxLayerState&>(state);
    const array queries = split_heads(array_of(q), spec.head_dim);
    if (k) {
      rows.append(split_heads(array_of(k), spec.head_dim), split_heads(array_of(v), spec.head_dim),
                  spec.softcap > 0, masks_);
      states_.push_back(&rows);
    }
    const array out = attend_parts(queries, rows.parts(), spec);
    return make_tensor(q.rows(), q.cols(),
                       mx::reshape(mx::transpose(out, {0, 2, 1, 3}), {batch_, length_, -1}));
  }

  Tensor add_output(const Tensor& x, const Linear& matrix, const Join& spec,
                    const Tensor& residual) override {
    const array y = on_mlx::join(linear(array_of(x), matrix), spec, residual);
    return make_tensor(x.rows(), matrix.weight.rows(), y);
  }

  Tensor mlp(const Tensor& x, const MlpSpec& spec, const Tensor& residual) override {
    const array n = spec.pre ? normalize(array_of(x), *spec.pre) : array_of(x);
    return finish_layer(x, on_mlx::join(on_mlx::mlp(n, spec.mlp), spec.join, residual));
  }

  Tensor moe(const Tensor& x, const MoeSpec& spec, const Tensor& residual) override {
    const array n = spec.pre ? normalize(array_of(x), *spec.pre) : array_of(x);
    const array routed = spec.router_pre ? normalize(array_of(x), *spec.router_pre) : n;
    return finish_layer(x, on_mlx::join(mixture(n, routed, spec), spec.join, residual));
  }

  Tensor add(const Tensor& a, const Tensor& b) override {
    return make_tensor(a.rows(), a.cols(), mx::add(array_of(a), array_of(b)));
  }

  Tensor multiply(const Tensor& x, const Weight& factor) override {
    return make_tensor(x.rows(), x.cols(), mx::multiply(array_of(x), array_of(factor)));
  }

  Tensor join(const Tensor& x, const Join& spec, const Tensor& residual) override {
    return finish_layer(x, on_mlx::join(array_of(x), spec, residual));
  }

  Tensor layer_inputs(const Tensor& x, std::span<const int32_t> tokens,
                      const LayerInputs& spec) override {
    const Tensor looked_up = embed(spec.table, tokens, spec.table_scale);
    array y = linear(array_of(x), spec.projection);
    y = mx::multiply(y, scalar(spec.projection_scale, y));
    y = normalize(mx::reshape(y, {batch_, length_, -1, spec.width}), spec.norm);
    y = mx::add(y, mx::reshape(array_of(looked_up), y.shape()));
    return make_tensor(x.rows(), looked_up.cols(), mx::multiply(y, scalar(spec.scale, y)));
  }

  Tensor add_layer_input(const Tensor& x, const LayerInputSpec& spec, const Tensor& inputs,
                         int layer) override {
    const array& all = array_of(inputs);  // [B, L, layers, width]
    const array part = mx::squeeze(
        mx::slice(all, {0, 0, layer, 0}, {batch_, length_, layer + 1, all.shape(3)}), 2);
    const array gate = activate(spec.activation, std::nullopt, linear(array_of(x), spec.gate));
    const array y = linear(mx::multiply(gate, part), spec.projection);
    return make_tensor(x.rows(), x.cols(), on_mlx::join(y, {spec.post, 1, false}, x));
  }

  std::vector<Score> head(const Tensor& hidden, const Head& head,
                          std::span<const HeadRequest> requests) override {
    std::vector<array> wanted = sealed_planes();
    if (requests.empty()) {
      evaluate(std::move(wanted));
      return {};
    }
    const array logits = logits_of(selected(array_of(hidden), requests), head);
    const Found found = find(logits);
    for (const array& a : {found.best, found.normal}) wanted.push_back(a);
    const bool read = std::any_of(requests.begin(), requests.end(), [](const HeadRequest& r) {
      return r.want == HeadRequest::Want::kLogits;
    });
    if (read) {
      logits_ = mx::contiguous(mx::astype(logits, mx::float32));
      wanted.push_back(*logits_);
    }
    evaluate(std::move(wanted));
    return scores_of(requests, tokens_of(found));
  }

  std::unique_ptr<PendingTokens> head_ahead(const Tensor& hidden, const Head& head,
                                            std::span<const HeadRequest> requests) override {
    if (!ahead_) return nullptr;
    std::vector<array> wanted = sealed_planes();
    Found found = find(logits_of(selected(array_of(hidden), requests), head));
    for (const array& a : {found.best, found.normal}) wanted.push_back(a);
    start(std::move(wanted));
    tokens_ahead_ = mx::flatten(found.best);
    return std::make_unique<Pending>(std::move(found));
  }

 private:
  // As mlx-lm's sampler, which sees log-probabilities: a near tie may fall otherwise on logits.
  static Found find(const array& logits) {
    const array total = mx::logsumexp(logits, -1, true);
    return {mx::argmax(mx::subtract(logits, total), -1),
            mx::astype(mx::isfinite(total), mx::int32)};
  }

  // What the states of this step hold, which they cannot go back from any more.
  std::vector<array> sealed_planes() {
    std::vector<array> all;
    for (MlxLayerState* state : states_) {
      state->seal();
      for (const array& plane : state->planes()) all.push_back(plane);
    }
    return all;
  }

  // [B, L]; tokens of a step are all known or all of the step before.
  array ids_of(std::span<const int32_t> tokens) const {
    if (tokens[0] >= 0) return array(tokens.data(), {batch_, length_}, mx::int32);
    std::vector<int32_t> from;
    for (const int32_t token : tokens) from.push_back(token_ahead(token));  // its own inverse
    const array places(from.data(), {batch_, length_}, mx::int32);
    return mx::take(tokens_ahead_.value(), places);
  }

  // [B, L, heads · head_dim] -> [B, heads, L, head_dim]; what is split already stays.
  array split_heads(const array& x, int head_dim) const {
    if (x.ndim() == 4) return x;
    return mx::transpose(mx::reshape(x, {batch_, length_, -1, head_dim}), {0, 2, 1, 3});
  }

  const RopeCall& call_of(const Rope& rope) {
    auto at = ropes_.find(&rope);
    if (at == ropes_.end()) at = ropes_.emplace(&rope, make_rope(rope)).first;
    return at->second;
  }

  // Rows that are stored differently attend by themselves.
  static array attend_parts(const array& q, const std::vector<KvPart>& parts,
                            const AttentionSpec& spec) {
    if (parts.size() == 1)
      return attention(q, parts[0].planes, parts[0].codec, parts[0].mask, spec);
    std::vector<array> outs;
    std::vector<int> back(size_t(q.shape(0)), 0);
    int next = 0;
    for (const KvPart& part : parts) {
      for (const int row : part.rows) back[size_t(row)] = next++;
      outs.push_back(attention(with_rows(q, part.rows), part.planes, part.codec, part.mask, spec));
    }
    return with_rows(mx::concatenate(std::move(outs), 0), back);
  }

  // Prompt chunks are computed layer by layer, so that they can be stopped between layers: keys and
  // values of this layer now, the rest with the next layer. Of the last layer that rest is needed
  // for logits alone.
  Tensor finish_layer(const Tensor& x, const array& y) {
    if (length_ > 1) {
      std::vector<array> now;
      if (!states_.empty()) now = states_.back()->planes();
      if (output_) now.push_back(*output_);
      evaluate(std::move(now));
      output_ = y;
    }
    return make_tensor(x.rows(), x.cols(), y);
  }

  // The hidden states of the requested tokens, [B, L, hidden] when those are all.
  array selected(const array& hidden, std::span<const HeadRequest> requests) const {
    bool all = requests.size() == size_t(batch_) * size_t(length_);
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < requests.size(); i++) {
      tokens.push_back(requests[i].token);
      all = all && requests[i].token == int(i);
    }
    if (all) return hidden;
    const array flat = mx::reshape(hidden, {1, batch_ * length_, -1});
    return mx::take(flat, array(tokens.data(), {int(tokens.size())}, mx::int32), 1);
  }

  static array logits_of(const array& hidden, const Head& head) {
    array x = normalize(hidden, head.norm);
    if (head.input_divisor != 1) x = mx::divide(x, scalar(head.input_divisor, x));
    x = linear(x, {head.weight, std::nullopt});
    if (head.scale != 1) x = mx::multiply(x, scalar(head.scale, x));
    if (head.divisor != 1) x = mx::divide(x, scalar(head.divisor, x));
    if (head.softcap <= 0) return x;
    return mx::multiply(mx::tanh(mx::divide(x, scalar(head.softcap, x))), scalar(head.softcap, x));
  }

  std::vector<Score> scores_of(std::span<const HeadRequest> requests,
                               const std::vector<int32_t>& best) {
    const size_t vocab = logits_ ? size_t(logits_->shape(-1)) : 0;
    std::vector<Score> scores(requests.size());
    for (size_t i = 0; i < requests.size(); i++) {
      if (requests[i].want == HeadRequest::Want::kLogits)
        scores[i].logits = {logits_->data<float>() + i * vocab, vocab};
      else
        scores[i].arg_max = best[i];
    }
    return scores;
  }

  const std::string numerics_id_ = fmt::format(
      "mlx-{}-{}", mx::version(), mx::default_device() == mx::Device::cpu ? "cpu" : "gpu");
  const Lanes lanes_;
  const bool ahead_;
  std::optional<PackedTable> table_;
  OwnKvType own_type_;
  std::map<const Rope*, RopeCall> ropes_;
  int batch_ = 0, length_ = 0;
  RopeOffset offset_ = 0;
  MaskCache masks_;
  std::vector<MlxLayerState*> states_;  // in the order of this step's layers
  std::optional<array> output_;         // of the layer that was built last, while a prompt is read
  std::optional<array> logits_;         // f32, what Scores point into
  std::optional<array> tokens_ahead_;   // what the last head_ahead finds
};

}  // namespace

std::unique_ptr<Backend> make_mlx_backend(const MlxOptions& options) {
  const std::string built =
      fmt::format("{}.{}.{}", MLX_VERSION_MAJOR, MLX_VERSION_MINOR, MLX_VERSION_PATCH);
  if (built != mx::version())
    fail_param(ErrorCode::kUnsupported, "backend",
               "libmlx is {}, this program was built for {}; scripts/run.sh --mlx sets it up again",
               mx::version(), built);
  mx::disable_compile();  // on CPUs it would run a compiler
  return std::make_unique<MlxBackend>(options);
}

}  // namespace mantou::on_mlx
