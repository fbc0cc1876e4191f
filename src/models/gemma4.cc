// Gemma 4 (text): sliding and full layers with heads of their own sizes; values are normed, and in
// the full layers of large models they are the keys; the last layers read the keys and values of an
// earlier one of their kind; small models give every layer an input of its own; a variant has
// experts beside its MLP.
#include <cmath>

#include "base/error.h"
#include "base/half.h"
#include "models/families.h"
#include "models/layers.h"
#include "models/loader.h"

namespace mantou::models {
namespace {

struct Config {
  DecoderConfig common;
  std::vector<bool> sliding;
  int global_head_dim = 0, global_kv_heads = 0;
  int own = 0;  // layers that have keys and values
  bool keys_are_values = false, wide_mlp = false;
  int input_width = 0;  // of a layer's own input; 0: none
  int64_t window = 0;
  std::optional<MoeConfig> moe;
};

Config read_config(const hub::ConfigReader& config) {
  Config c;
  c.common = read_decoder_config(config);
  c.common.activation = Activation::kGeluTanh;
  c.sliding = sliding_layers(config, c.common.layers, 5);
  c.global_head_dim = int(config.get_int("global_head_dim", 1, 512, 512));
  c.keys_are_values = config.get_bool("attention_k_eq_v", false);
  c.global_kv_heads = int(config.get_int("num_global_key_value_heads", 1, 4096, c.common.kv_heads));
  c.own = c.common.layers - int(config.get_int("num_kv_shared_layers", 0, c.common.layers - 1, 20));
  for (size_t i = size_t(c.own); i < c.sliding.size(); i++)
    if (const auto own = c.sliding.begin() + c.own;
        std::find(c.sliding.begin(), own, c.sliding[i]) == own)
      config.fail_key(
          "num_kv_shared_layers",
          fmt::format("makes layer {} share the keys and values of a layer of its kind, "
                      "but none of the first {} is (layer_types)",
                      i, c.own));
  c.wide_mlp = config.get_bool("use_double_wide_mlp", true);
  c.input_width = int(config.get_int("hidden_size_per_layer_input", 0, 1 << 16, 256));
  c.window = read_window(config, 512);
  if (c.global_head_dim % 2 != 0)
    fail_param(ErrorCode::kUnsupported, "global_head_dim",
               "{}: global_head_dim is {}, must be even for rope", config.origin(),
               c.global_head_dim);
  if (c.common.heads % c.global_kv_heads != 0)
    config.fail_key("num_attention_heads",
                    fmt::format("is {}, no multiple of num_global_key_value_heads ({})",
                                c.common.heads, c.global_kv_heads));
  if (config.get_bool("enable_moe_block", false)) {
    MoeConfig moe;
    moe.experts = int(config.get_int("num_experts", 1, 1 << 16));
    moe.top_k = int(config.get_int("top_k_experts", 1, moe.experts));
    moe.intermediate = int(config.get_int("moe_intermediate_size", 1, 1 << 22));
    c.moe = moe;
  }
  return c;
}

struct Layer {
  Norm input_norm, q_norm;
  std::optional<Norm> k_norm, v_norm;  // none: reads the state of an earlier layer
  Linear q, o;
  std::optional<Linear> k, v;  // v none: the keys, before they are normed
  Join attention_join;
  AttentionSpec attention;
  const Rope* rope = nullptr;
  size_t state = 0;
  MlpSpec mlp;                 // joins the residual, or
  std::optional<MoeSpec> moe;  // its result and that of the experts are summed and
  Join both_join;              // then join it
  std::optional<LayerInputSpec> input;
  std::optional<Weight> scalar;
};

class Gemma4 final : public Model {
 public:
  Gemma4(Config config, std::vector<Rope> ropes, hub::ModelArtifact& artifact, Backend& backend)
      : c_(std::move(config)), ropes_(std::move(ropes)), load_(artifact, backend) {
    const DecoderConfig& d = c_.common;
    info_ = {hub::config_reader(artifact).get_string("model_type"), d.vocab, d.max_positions};
    table_ = load_.matrix("embed_tokens", d.vocab, d.hidden, WeightUse::kTable);
    if (c_.input_width > 0) inputs_ = layer_inputs();
    for (int i = 0; i < d.layers; i++) layers_.push_back(layer(i));
    head_.norm = norm("norm", d.hidden);
    head_.weight = load_.matrix(d.tied ? "embed_tokens" : "lm_head", d.vocab, d.hidden);
    head_.softcap = d.final_softcap;
  }

  const ModelInfo& info() const override { return info_; }
  const Head& head() const override { return head_; }

  std::vector<StateSpec> state_specs(KvType type) const override {
    std::vector<StateSpec> specs;
    for (int i = 0; i < c_.own; i++)
      specs.push_back({kv_heads(i), head_dim(i), c_.sliding[size_t(i)] ? c_.window : 0, type});
    return specs;
  }

  Tensor forward(Backend& backend, std::span<const int32_t> tokens,
                 std::span<const std::unique_ptr<LayerState>> states,
                 const StopFlag* stop) const override {
    Tensor x = backend.embed(table_, tokens, c_.common.embed_scale);
    const Tensor inputs = inputs_ ? backend.layer_inputs(x, tokens, *inputs_) : Tensor();
    for (size_t i = 0; i < layers_.size(); i++) {
      if (stop && stop->is_set()) throw Error(ErrorCode::kCancelled, "stopped between layers");
      const Layer& layer = layers_[i];
      x = feed_forward(backend, layer, attend(backend, layer, *states[layer.state], x));
      if (layer.input) x = backend.add_layer_input(x, *layer.input, inputs, int(i));
      if (layer.scalar) x = backend.multiply(x, *layer.scalar);
    }
    return x;
  }

 private:
  Tensor attend(Backend& backend, const Layer& layer, LayerState& state, const Tensor& x) const {
    const int d = layer.attention.head_dim;
    std::vector<const Linear*> linears{&layer.q};
    if (layer.k) linears.push_back(&*layer.k);
    if (layer.v) linears.push_back(&*layer.v);
    std::vector<Tensor> p = backend.project(x, &layer.input_norm, linears);
    const Tensor q = backend.heads(std::move(p[0]), d, &layer.q_norm, layer.rope);
    Tensor k, v;
    if (layer.k) {
      // The values first: where they are the keys, those are still as they were projected.
      v = layer.v ? backend.heads(std::move(p[2]), d, &*layer.v_norm, nullptr)
                  : backend.heads(backend.join(p[1], {}, {}), d, &*layer.v_norm, nullptr);
      k = backend.heads(std::move(p[1]), d, &*layer.k_norm, layer.rope);
    }
    const Tensor a = backend.attend(state, q, k, v, layer.attention);
    return backend.add_output(a, layer.o, layer.attention_join, x);
  }

  static Tensor feed_forward(Backend& backend, const Layer& layer, const Tensor& h) {
    if (!layer.moe) return backend.mlp(h, layer.mlp, h);
    const Tensor dense = backend.mlp(h, layer.mlp, {});
    return backend.join(backend.moe(h, *layer.moe, dense), layer.both_join, h);
  }

  int head_dim(int i) const {
    return c_.sliding[size_t(i)] ? c_.common.head_dim : c_.global_head_dim;
  }
  int kv_heads(int i) const {
    return c_.keys_are_values && !c_.sliding[size_t(i)] ? c_.global_kv_heads : c_.common.kv_heads;
  }

  Norm norm(const std::string& module, int64_t size) {
    Norm norm;
    norm.scale = load_.vector(module + ".weight", size);
    norm.eps = c_.common.norm_eps;
    return norm;
  }

  LayerInputs layer_inputs() {
    const DecoderConfig& d = c_.common;
    const int64_t all = int64_t{d.layers} * c_.input_width;
    LayerInputs inputs;
    inputs.width = c_.input_width;
    inputs.table = load_.matrix("embed_tokens_per_layer", d.vocab, all, WeightUse::kTable);
    inputs.table_scale = float(std::sqrt(double(c_.input_width)));
    inputs.projection = load_.linear("per_layer_model_projection", all, d.hidden, false);
    inputs.projection_scale = float(std::pow(double(d.hidden), -0.5));
    inputs.norm = norm("per_layer_projection_norm", c_.input_width);
    inputs.scale = float(std::pow(2.0, -0.5));
    return inputs;
  }

  // The last layer before the shared ones that slides as layer i does.
  size_t donor(int i) const {
    for (int j = c_.own - 1; j >= 0; j--)
      if (c_.sliding[size_t(j)] == c_.sliding[size_t(i)]) return size_t(j);
    fail(ErrorCode::kInternal, "layer {} has no donor", i);  // read_config refuses that
  }

  Layer layer(int i) {
    const DecoderConfig& d = c_.common;
    const std::string at = fmt::format("layers.{}.", i);
    const bool shares = i >= c_.own;
    Layer layer;
    layer.state = shares ? donor(i) : size_t(i);
    layer.rope = &ropes_[c_.sliding[size_t(i)] ? 0 : 1];
    layer.input_norm = norm(at + "input_layernorm", d.hidden);
    load_attention(layer, at + "self_attn.", i, shares);
    layer.attention_join.post = norm(at + "post_attention_layernorm", d.hidden);
    load_feed_forward(layer, at, shares && c_.wide_mlp ? 2 * d.intermediate : d.intermediate);
    if (c_.input_width > 0)
      layer.input =
          LayerInputSpec{load_.linear(at + "per_layer_input_gate", c_.input_width, d.hidden, false),
                         load_.linear(at + "per_layer_projection", d.hidden, c_.input_width, false),
                         Activation::kGeluTanh, norm(at + "post_per_layer_input_norm", d.hidden)};
    if (load_.has(at + "layer_scalar")) layer.scalar = load_.vector(at + "layer_scalar", 1);
    return layer;
  }

  void load_attention(Layer& layer, const std::string& at, int i, bool shares) {
    const DecoderConfig& d = c_.common;
    const int dim = head_dim(i);
    const int64_t q_width = int64_t{d.heads} * dim, kv_width = int64_t{kv_heads(i)} * dim;
    layer.attention.heads = d.heads;
    layer.attention.kv_heads = kv_heads(i);
    layer.attention.head_dim = dim;
    layer.q = load_.linear(at + "q_proj", q_width, d.hidden, false);
    layer.o = load_.linear(at + "o_proj", d.hidden, q_width, false);
    layer.q_norm = norm(at + "q_norm", dim);
    if (shares) {  // published checkpoints hold what the training left there
      for (const char* name : {"k_proj", "v_proj", "k_norm"}) load_.leave_out(at + name);
      return;
    }
    layer.k = load_.linear(at + "k_proj", kv_width, d.hidden, false);
    if (!c_.keys_are_values || c_.sliding[size_t(i)])
      layer.v = load_.linear(at + "v_proj", kv_width, d.hidden, false);
    layer.k_norm = norm(at + "k_norm", dim);
    layer.v_norm = Norm{};
    layer.v_norm->eps = d.norm_eps;
  }

  void load_feed_forward(Layer& layer, const std::string& at, int64_t width) {
    const DecoderConfig& d = c_.common;
    layer.mlp.pre = norm(at + "pre_feedforward_layernorm", d.hidden);
    layer.mlp.mlp = {load_.linear(at + "mlp.gate_proj", width, d.hidden, false),
                     load_.linear(at + "mlp.up_proj", width, d.hidden, false),
                     load_.linear(at + "mlp.down_proj", d.hidden, width, false), d.activation};
    const Norm post = norm(at + "post_feedforward_layernorm", d.hidden);
    if (!c_.moe) {
      layer.mlp.join.post = post;
      return;
    }
    layer.mlp.join.post = norm(at + "post_feedforward_layernorm_1", d.hidden);
    layer.both_join.post = post;
    layer.moe = moe(at);
  }

  MoeSpec moe(const std::string& at) {
    const DecoderConfig& d = c_.common;
    const MoeConfig& m = *c_.moe;
    MoeSpec spec;
    spec.pre = norm(at + "pre_feedforward_layernorm_2", d.hidden);
    Norm router;
    router.scale = load_.vector(at + "router.scale", d.hidden);
    router.scale_factor = float(std::pow(double(d.hidden), -0.5));
    router.eps = d.norm_eps;
    spec.router_pre = router;
    spec.router =
        load_.linear(at + "router.proj", m.experts, d.hidden, false, {}, WeightUse::kRouter);
    spec.top_k = m.top_k;
    spec.weights = MoeSpec::Weights::kOfChosen;
    spec.from_front = false;
    spec.wide_softmax = false;
    spec.expert_scale = load_.vector(at + "router.per_expert_scale", m.experts);
    spec.experts = experts(at + "experts.");
    spec.join.post = norm(at + "post_feedforward_layernorm_2", d.hidden);
    return spec;
  }

  // Stacked; gate and up by themselves or, as published, gate above up in one.
  Experts experts(const std::string& at) {
    const MoeConfig& m = *c_.moe;
    const int64_t hidden = c_.common.hidden, width = m.intermediate;
    const auto stack = [&](const std::string& name) {
      return (load_.has(at + "switch_glu." + name + ".weight") ? at + "switch_glu." : at) + name;
    };
    const bool split = load_.has(at + "switch_glu.gate_proj.weight");
    std::vector<ExpertRows> gate, up, down;
    for (int64_t e = 0; e < m.experts; e++) {
      const auto rows = [&](const char* name, int64_t each, int64_t first, int64_t count) {
        return ExpertRows{stack(name), m.experts * each, row_range(e * each + first, count)};
      };
      gate.push_back(split ? rows("gate_proj", width, 0, width)
                           : rows("gate_up_proj", 2 * width, 0, width));
      up.push_back(split ? rows("up_proj", width, 0, width)
                         : rows("gate_up_proj", 2 * width, width, width));
      down.push_back(rows("down_proj", hidden, 0, hidden));
    }
    return {m.experts, load_.experts(gate, hidden, false), load_.experts(up, hidden, false),
            load_.experts(down, width, false), c_.common.activation};
  }

  Config c_;
  std::vector<Rope> ropes_;  // of sliding and of full layers
  Loader load_;
  ModelInfo info_;
  Weight table_;
  std::optional<LayerInputs> inputs_;
  std::vector<Layer> layers_;
  Head head_;
};

}  // namespace

std::unique_ptr<Model> load_gemma4(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  Config c = read_config(config);
  c.common.tied = !artifact.has("lm_head.weight");
  c.common.embed_scale = std::sqrt(float(c.common.hidden));
  c.common.final_softcap = float(config.get_double("final_logit_softcapping", 0, 1e6, 30.0));
  const double local = config.get_double("rope_local_base_freq", 1e-3, 1e12, 10000.0);
  std::vector<Rope> ropes{plain_rope(local, c.common.head_dim),
                          read_rope(artifact, config, c.global_head_dim, 1e6)};
  return std::make_unique<Gemma4>(std::move(c), std::move(ropes), artifact, backend);
}

}  // namespace mantou::models
