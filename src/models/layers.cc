#include "models/layers.h"

#include <cmath>

#include "base/error.h"
#include "models/loader.h"

namespace mantou::models {
namespace {

// The order of `heads` heads' rows in which the rotated dimensions 2i and 2i + 1 become i and
// i + rotated / 2; the others stay. Rows start at `first`.
RowList half_rotated(int64_t first, int heads, int head_dim, int rotated) {
  RowList rows;
  for (int h = 0; h < heads; h++) {
    const int64_t head = first + int64_t{h} * head_dim;
    for (int second = 0; second < 2; second++)
      for (int i = 0; i < rotated / 2; i++) rows.push_back(uint32_t(head + 2 * i + second));
    for (int i = rotated; i < head_dim; i++) rows.push_back(uint32_t(head + i));
  }
  return rows;
}

struct Layer {
  std::optional<Norm> input_norm;
  Linear q, k, v, o;
  std::optional<Norm> q_norm, k_norm;
  Join attention_join;
  AttentionSpec attention;
  int rope = 0;
  std::optional<MlpSpec> mlp;
  std::optional<MoeSpec> moe;  // instead of the MLP
};

// Makes the layers of one decoder.
class LayerBuilder {
 public:
  LayerBuilder(Loader& load, const DecoderConfig& config, const std::vector<Rope>& ropes)
      : load_(load), c_(config), ropes_(ropes) {}

  Layer build(int index) {
    prefix_ = fmt::format("layers.{}.", index);
    Layer layer;
    layer.rope = c_.rope_of.empty() ? 0 : c_.rope_of[size_t(index)];
    layer.input_norm = norm(c_.names.input_norm, c_.hidden);
    load_attention(layer);
    const bool sparse = c_.moe && c_.moe->sparse[size_t(index)];
    if (sparse)
      layer.moe = moe(*c_.moe);
    else
      layer.mlp = MlpSpec{pre_mlp(), dense_mlp(), join(c_.names.post_mlp_norm)};
    return layer;
  }

  Norm final_norm() { return make_norm("norm", c_.hidden); }

 private:
  Norm norm_of(Weight scale) const {
    Norm norm;
    norm.scale = std::move(scale);
    norm.eps = c_.norm_eps;
    norm.plus_one = c_.norm_plus_one && !load_.artifact().norm_plus_one_baked();
    norm.kind = c_.norm;
    return norm;
  }

  Norm make_norm(const std::string& module, int64_t size) {
    Norm norm = norm_of(load_.vector(module + ".weight", size));
    if (c_.norm_bias) norm.bias = load_.vector(module + ".bias", size);
    return norm;
  }

  std::optional<Norm> norm(const std::string& name, int64_t size) {
    if (name.empty()) return std::nullopt;
    return make_norm(prefix_ + name, size);
  }

  std::optional<Norm> pre_mlp() {
    return norm(c_.parallel ? c_.names.input_norm : c_.names.pre_mlp_norm, c_.hidden);
  }

  Join join(const std::string& post) { return {norm(post, c_.hidden), c_.residual_scale}; }

  // Rows of one of q, k and v that start at `first` of a stored matrix.
  RowList head_rows(int64_t first, int heads, const Rope* rope) const {
    const int rotated = rope && c_.interleaved_rope ? 2 * int(rope->inv_freq.size()) : 0;
    return half_rotated(first, heads, c_.head_dim, rotated);
  }

  // Per key head: its queries, the key, the value.
  RowList grouped_rows(int part) const {
    const int group = c_.heads / c_.kv_heads, block = (group + 2) * c_.head_dim;
    const int64_t skip = part == 0 ? 0 : int64_t{group + part - 1} * c_.head_dim;
    RowList rows;
    for (int h = 0; h < c_.kv_heads; h++) {
      const RowList run =
          row_range(int64_t{h} * block + skip, int64_t{part == 0 ? group : 1} * c_.head_dim);
      rows.insert(rows.end(), run.begin(), run.end());
    }
    return rows;
  }

  void load_attention(Layer& layer) {
    const std::string at = prefix_ + c_.names.attention;
    const int64_t q_width = int64_t{c_.heads} * c_.head_dim;
    const int64_t kv_width = int64_t{c_.kv_heads} * c_.head_dim;
    const Rope* rope = layer.rope < 0 ? nullptr : &ropes_[size_t(layer.rope)];
    Linear* const parts[] = {&layer.q, &layer.k, &layer.v};
    const char* const names[] = {"q_proj", "k_proj", "v_proj"};
    const bool fused = load_.has(at + c_.names.qkv + ".weight");
    int64_t first = 0;
    for (int i = 0; i < 3; i++) {
      const int64_t width = i == 0 ? q_width : kv_width;
      const RowList rows = fused && c_.grouped_qkv
                               ? grouped_rows(i)
                               : head_rows(fused ? first : 0, i == 0 ? c_.heads : c_.kv_heads,
                                           i < 2 ? rope : nullptr);
      *parts[i] =
          load_.linear(at + (fused ? c_.names.qkv : names[i]),
                       fused ? q_width + 2 * kv_width : width, c_.hidden, c_.qkv_bias, rows);
      first += width;
    }
    layer.o = load_.linear(at + c_.names.o, c_.hidden, q_width, c_.o_bias);
    layer.attention_join = join(c_.names.post_attention_norm);
    layer.q_norm = qk_norm(c_.names.q_norm, c_.heads, rope);
    layer.k_norm = qk_norm(c_.names.k_norm, c_.kv_heads, rope);
    layer.attention = {c_.heads,           c_.kv_heads,          c_.head_dim,
                       c_.attention_scale, c_.attention_softcap, std::nullopt};
    if (c_.sinks) {
      const bool named = load_.has(at + "sinks.weight");  // as in GGUF files
      layer.attention.sinks = load_.vector(at + (named ? "sinks.weight" : "sinks"), c_.heads);
    }
  }

  // The norm's scales follow the rows of the heads.
  std::optional<Norm> qk_norm(const std::string& name, int heads, const Rope* rope) {
    if (c_.qk_norm == QkNorm::kNone) return std::nullopt;
    const std::string module = prefix_ + name;
    const int64_t all = int64_t{heads} * c_.head_dim;
    std::vector<float> scale;
    if (c_.qk_norm != QkNorm::kWhole && load_.has(module + ".norms.0.weight")) {
      for (int h = 0; h < heads; h++) {
        const auto one = load_.floats(fmt::format("{}.norms.{}.weight", module, h), c_.head_dim);
        scale.insert(scale.end(), one.begin(), one.end());
      }
    } else {
      const bool one = c_.qk_norm != QkNorm::kWhole && load_.size(module + ".weight") != all;
      scale = load_.floats(module + ".weight", one ? c_.head_dim : all);
    }
    const int stored_heads = int(int64_t(scale.size()) / c_.head_dim);
    std::vector<float> ordered;
    for (const uint32_t row : head_rows(0, stored_heads, rope)) ordered.push_back(scale[row]);
    return norm_of(load_.vector(module + ".weight", ordered));
  }

  Mlp dense_mlp() {
    const LayerNames& n = c_.names;
    const std::string fused = prefix_ + "mlp.gate_up_proj";
    const int64_t width = c_.intermediate;
    Mlp mlp;
    mlp.activation = c_.activation;
    if (c_.gated && load_.has(fused + ".weight")) {
      mlp.gate = load_.linear(fused, 2 * width, c_.hidden, c_.mlp_bias, row_range(0, width));
      mlp.up = load_.linear(fused, 2 * width, c_.hidden, c_.mlp_bias, row_range(width, width));
    } else {
      if (c_.gated) mlp.gate = load_.linear(prefix_ + n.gate, width, c_.hidden, c_.mlp_bias);
      mlp.up = load_.linear(prefix_ + n.up, width, c_.hidden, c_.mlp_bias);
    }
    mlp.down = load_.linear(prefix_ + n.down, c_.hidden, width, c_.mlp_bias);
    return mlp;
  }

  MoeSpec moe(const MoeConfig& m) {
    MoeSpec spec;
    spec.pre = pre_mlp();
    spec.router =
        load_.linear(prefix_ + m.router, m.experts, c_.hidden, m.bias, {}, WeightUse::kRouter);
    spec.top_k = m.top_k;
    spec.renormalize = m.renormalize;
    const std::string stack = prefix_ + m.stacked;
    for (int e = 0; e < m.experts; e++)
      spec.experts.push_back(load_.has(stack + "gate_proj.weight")      ? slice(m, e)
                             : load_.has(stack + "gate_up_proj.weight") ? interleaved(m, e)
                                                                        : single(m, e));
    if (m.shared_intermediate > 0) {
      const std::string at = prefix_ + "mlp.shared_expert.";
      const int64_t width = m.shared_intermediate;
      spec.shared = Mlp{load_.linear(at + "gate_proj", width, c_.hidden, false),
                        load_.linear(at + "up_proj", width, c_.hidden, false),
                        load_.linear(at + "down_proj", c_.hidden, width, false), c_.activation};
      spec.shared_gate = load_.linear(prefix_ + "mlp.shared_expert_gate", 1, c_.hidden, false, {},
                                      WeightUse::kRouter);
    }
    spec.join = join(c_.names.post_mlp_norm);
    return spec;
  }

  Mlp slice(const MoeConfig& m, int e) {
    const auto part = [&](const char* name, int64_t rows, int64_t cols) {
      return load_.linear(prefix_ + m.stacked + name, m.experts * rows, cols, m.bias,
                          row_range(e * rows, rows));
    };
    return {part("gate_proj", m.intermediate, c_.hidden),
            part("up_proj", m.intermediate, c_.hidden),
            part("down_proj", c_.hidden, m.intermediate), c_.activation};
  }

  // Rows of gate and up in turns, as gpt-oss is published.
  Mlp interleaved(const MoeConfig& m, int e) {
    const std::string at = prefix_ + m.stacked;
    const int64_t width = m.intermediate;
    const auto every_other = [&](int64_t first) {
      RowList rows(static_cast<size_t>(width));
      for (int64_t i = 0; i < width; i++) rows[size_t(i)] = uint32_t(2 * (e * width + i) + first);
      return load_.linear(at + "gate_up_proj", m.experts * 2 * width, c_.hidden, m.bias, rows);
    };
    return {every_other(0), every_other(1),
            load_.linear(at + "down_proj", m.experts * c_.hidden, width, m.bias,
                         row_range(e * c_.hidden, c_.hidden)),
            c_.activation};
  }

  Mlp single(const MoeConfig& m, int e) {
    const std::string at = prefix_ + fmt::format(fmt::runtime(m.single), e);
    return {load_.linear(at + m.gate, m.intermediate, c_.hidden, m.bias),
            load_.linear(at + m.up, m.intermediate, c_.hidden, m.bias),
            load_.linear(at + m.down, c_.hidden, m.intermediate, m.bias), c_.activation};
  }

  Loader& load_;
  const DecoderConfig& c_;
  const std::vector<Rope>& ropes_;
  std::string prefix_;
};

class Decoder final : public Model {
 public:
  Decoder(DecoderConfig config, std::vector<Rope> ropes, hub::ModelArtifact& artifact,
          Backend& backend)
      : config_(std::move(config)), ropes_(std::move(ropes)) {
    info_ = {hub::config_reader(artifact).get_string("model_type"), config_.vocab,
             config_.max_positions};
    if (config_.attention_scale == 0)
      config_.attention_scale = 1 / std::sqrt(float(config_.head_dim));
    Loader load(artifact, backend);
    LayerBuilder builder(load, config_, ropes_);
    table_ = load.matrix(config_.embed, config_.vocab, config_.hidden, WeightUse::kTable);
    for (int i = 0; i < config_.layers; i++) layers_.push_back(builder.build(i));
    head_.norm = builder.final_norm();
    head_.weight =
        load.matrix(config_.tied ? config_.embed : config_.lm_head, config_.vocab, config_.hidden);
    head_.scale = config_.logits_scale;
    head_.softcap = config_.final_softcap;
  }

  const ModelInfo& info() const override { return info_; }
  const Head& head() const override { return head_; }

  std::vector<StateSpec> state_specs(KvType type) const override {
    std::vector<StateSpec> specs;
    for (int i = 0; i < config_.layers; i++)
      specs.push_back({config_.kv_heads, config_.head_dim,
                       config_.windows.empty() ? 0 : config_.windows[size_t(i)], type});
    return specs;
  }

  Tensor forward(Backend& backend, std::span<const int32_t> tokens,
                 std::span<const std::unique_ptr<LayerState>> states,
                 const StopFlag* stop) const override {
    Tensor x = backend.embed(table_, tokens, config_.embed_scale);
    for (size_t i = 0; i < layers_.size(); i++) {
      if (stop && stop->is_set()) throw Error(ErrorCode::kCancelled, "stopped between layers");
      x = forward_layer(backend, layers_[i], *states[i], x);
    }
    return x;
  }

 private:
  Tensor forward_layer(Backend& backend, const Layer& layer, LayerState& state,
                       const Tensor& x) const {
    const Rope* rope = layer.rope < 0 ? nullptr : &ropes_[size_t(layer.rope)];
    const Linear* const qkv[] = {&layer.q, &layer.k, &layer.v};
    std::vector<Tensor> p = backend.project(x, get(layer.input_norm), qkv);
    const Tensor q = heads(backend, std::move(p[0]), get(layer.q_norm), rope);
    const Tensor k = heads(backend, std::move(p[1]), get(layer.k_norm), rope);
    const Tensor a = backend.attend(state, q, k, p[2], layer.attention);
    const Tensor h = backend.add_output(a, layer.o, layer.attention_join, x);
    if (!config_.parallel)
      return layer.moe ? backend.moe(h, *layer.moe, h) : backend.mlp(h, *layer.mlp, h);
    return backend.mlp(x, *layer.mlp, h);
  }

  Tensor heads(Backend& backend, Tensor x, const Norm* norm, const Rope* rope) const {
    const int d = config_.head_dim;
    switch (config_.qk_norm) {
      case QkNorm::kNone:
      case QkNorm::kHead:
        return backend.heads(std::move(x), d, norm, rope);
      case QkNorm::kHeadAfterRope:
        return backend.heads(backend.heads(std::move(x), d, nullptr, rope), d, norm, nullptr);
      case QkNorm::kWhole: {
        const int width = int(x.cols());
        return backend.heads(backend.heads(std::move(x), width, norm, nullptr), d, nullptr, rope);
      }
    }
    return x;
  }

  static const Norm* get(const std::optional<Norm>& norm) { return norm ? &*norm : nullptr; }

  DecoderConfig config_;
  std::vector<Rope> ropes_;
  ModelInfo info_;
  Weight table_;
  std::vector<Layer> layers_;
  Head head_;
};

}  // namespace

std::unique_ptr<Model> build_decoder(const DecoderConfig& config, std::vector<Rope> ropes,
                                     hub::ModelArtifact& artifact, Backend& backend) {
  return std::make_unique<Decoder>(config, std::move(ropes), artifact, backend);
}

}  // namespace mantou::models
