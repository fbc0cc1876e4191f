#include "models/layers.h"

#include <cmath>

#include "base/error.h"
#include "models/loader.h"

namespace mantou::models {
namespace {

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
  LayerBuilder(Loader& load, const DecoderConfig& config) : load_(load), c_(config) {}

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

  Join join(const std::string& post) {
    return {norm(post, c_.hidden), c_.residual_scale, c_.clip_f16};
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
    Linear* const parts[] = {&layer.q, &layer.k, &layer.v};
    const char* const names[] = {"q_proj", "k_proj", "v_proj"};
    const bool fused = load_.has(at + c_.names.qkv + ".weight");
    int64_t first = 0;
    for (int i = 0; i < 3; i++) {
      const int64_t width = i == 0 ? q_width : kv_width;
      const RowList rows = !fused           ? RowList{}
                           : c_.grouped_qkv ? grouped_rows(i)
                                            : row_range(first, width);
      *parts[i] =
          load_.linear(at + (fused ? c_.names.qkv : names[i]),
                       fused ? q_width + 2 * kv_width : width, c_.hidden, c_.qkv_bias, rows);
      first += width;
    }
    layer.o = load_.linear(at + c_.names.o, c_.hidden, q_width, c_.o_bias);
    layer.attention_join = join(c_.names.post_attention_norm);
    layer.q_norm = qk_norm(c_.names.q_norm, c_.heads);
    layer.k_norm = qk_norm(c_.names.k_norm, c_.kv_heads);
    layer.attention = {c_.heads, c_.kv_heads, c_.head_dim, c_.attention_scale, c_.attention_softcap,
                       c_.widen, std::nullopt};
    if (c_.sinks) {
      const bool named = load_.has(at + "sinks.weight");  // as in GGUF files
      layer.attention.sinks = load_.vector(at + (named ? "sinks.weight" : "sinks"), c_.heads);
    }
  }

  std::optional<Norm> qk_norm(const std::string& name, int heads) {
    if (c_.qk_norm == QkNorm::kNone) return std::nullopt;
    const std::string module = prefix_ + name;
    if (c_.qk_norm != QkNorm::kWhole && load_.has(module + ".norms.0.weight")) {
      std::vector<std::string> each;
      for (int h = 0; h < heads; h++) each.push_back(fmt::format("{}.norms.{}.weight", module, h));
      return norm_of(load_.vector(each, c_.head_dim));
    }
    const int64_t all = int64_t{heads} * c_.head_dim;
    const bool one = c_.qk_norm != QkNorm::kWhole && load_.size(module + ".weight") != all;
    return norm_of(load_.vector(module + ".weight", one ? c_.head_dim : all));
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
    spec.weights = m.weights;
    spec.from_front = m.from_front;
    spec.experts = experts(m);
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

  // The experts' matrices: stacked (gate and up by themselves, or their rows in turns as gpt-oss is
  // published), or one by one.
  Experts experts(const MoeConfig& m) {
    const std::string stack = prefix_ + m.stacked;
    const bool in_turns = load_.has(stack + "gate_up_proj.weight");
    const bool stacked = in_turns || load_.has(stack + "gate_proj.weight");
    const auto rows_of = [&](const char* name, const std::string& single, int64_t rows, int e) {
      if (!stacked)
        return ExpertRows{prefix_ + fmt::format(fmt::runtime(m.single), e) + single, rows, {}};
      return ExpertRows{stack + name, m.experts * rows, row_range(e * rows, rows)};
    };
    const auto turns_of = [&](int64_t first, int e) {
      ExpertRows all{stack + "gate_up_proj", int64_t{m.experts} * 2 * m.intermediate, {}};
      for (int64_t i = 0; i < m.intermediate; i++)
        all.rows.push_back(uint32_t(2 * (int64_t{e} * m.intermediate + i) + first));
      return all;
    };
    std::vector<ExpertRows> gate, up, down;
    for (int e = 0; e < m.experts; e++) {
      gate.push_back(in_turns ? turns_of(0, e) : rows_of("gate_proj", m.gate, m.intermediate, e));
      up.push_back(in_turns ? turns_of(1, e) : rows_of("up_proj", m.up, m.intermediate, e));
      down.push_back(rows_of("down_proj", m.down, c_.hidden, e));
    }
    return {m.experts, load_.experts(gate, c_.hidden, m.bias), load_.experts(up, c_.hidden, m.bias),
            load_.experts(down, m.intermediate, m.bias), c_.activation};
  }

  Loader& load_;
  const DecoderConfig& c_;
  std::string prefix_;
};

class Decoder final : public Model {
 public:
  Decoder(DecoderConfig config, std::vector<Rope> ropes, hub::ModelArtifact& artifact,
          Backend& backend)
      : config_(std::move(config)), ropes_(std::move(ropes)) {
    info_ = {hub::config_reader(artifact).get_string("model_type"), config_.vocab,
             config_.max_positions, config_.mlx_lm_slides};
    for (Rope& rope : ropes_) rope.interleaved = config_.interleaved_rope;
    if (config_.attention_scale == 0)
      config_.attention_scale = float(std::pow(double(config_.head_dim), -0.5));
    Loader load(artifact, backend);
    LayerBuilder builder(load, config_);
    table_ = load.matrix(config_.embed, config_.vocab, config_.hidden, WeightUse::kTable);
    for (int i = 0; i < config_.layers; i++) layers_.push_back(builder.build(i));
    head_.norm = builder.final_norm();
    head_.weight =
        load.matrix(config_.tied ? config_.embed : config_.lm_head, config_.vocab, config_.hidden);
    head_.input_divisor = config_.head_input_divisor;
    head_.scale = config_.logits_scale;
    head_.divisor = config_.logits_divisor;
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
    const Tensor none;
    const Tensor h =
        backend.add_output(a, layer.o, layer.attention_join, config_.residual_last ? none : x);
    if (!config_.parallel)
      return layer.moe ? backend.moe(h, *layer.moe, h) : backend.mlp(h, *layer.mlp, h);
    const Tensor y = backend.mlp(x, *layer.mlp, h);
    return config_.residual_last ? backend.add(y, x) : y;
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
