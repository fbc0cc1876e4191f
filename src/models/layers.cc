#include "models/layers.h"

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace mantou::models {
namespace {

constexpr int64_t kMaxExtent = 1 << 24;

struct ActivationName {
  std::string_view name;  // hidden_act
  Activation activation;
};
constexpr ActivationName kActivations[] = {{"silu", Activation::kSilu},
                                           {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                           {"gelu", Activation::kGeluErf}};

Activation read_activation(const hub::ConfigReader& config) {
  const std::string name = config.get_string("hidden_act", "silu");
  for (const ActivationName& known : kActivations)
    if (known.name == name) return known.activation;
  fail_param(ErrorCode::kUnsupported, "hidden_act",
             "{}: hidden_act \"{}\" is not supported (silu, gelu_pytorch_tanh, gelu are)",
             config.origin(), name);
}

// A vector of any shape as a weight of one row.
RawWeight as_row(RawTensor tensor) {
  RawWeight row;
  row.rows = 1;
  row.cols = tensor.elements();
  row.data = std::move(tensor);
  return row;
}

// Takes weights out of an artifact, checked against the shape the configuration implies.
class Loader {
 public:
  Loader(hub::ModelArtifact& artifact, Backend& backend, const DenseConfig& config)
      : artifact_(artifact), backend_(backend), config_(config) {}

  Weight matrix(const std::string& module, int64_t rows, int64_t cols,
                WeightUse use = WeightUse::kMatrix) {
    const RawWeight raw = artifact_.weight(module);
    if (raw.rows != rows || raw.cols != cols)
      fail_param(ErrorCode::kCorruptData, module,
                 "{}: {} is {} x {}, the configuration says {} x {}", artifact_.path().string(),
                 module, raw.rows, raw.cols, rows, cols);
    return pack(raw, module, use);
  }

  Weight vector(const std::string& name, int64_t size) {
    const RawTensor tensor = artifact_.tensor(name);
    if (tensor.elements() != size || is_block_type(tensor.dtype))
      fail_param(ErrorCode::kCorruptData, name,
                 "{}: {} has {} elements of {}, needed are {} floats", artifact_.path().string(),
                 name, tensor.elements(), dtype_info(tensor.dtype).name, size);
    return backend_.pack(as_row(tensor), WeightUse::kVector);
  }

  Linear linear(const std::string& module, int64_t rows, int64_t cols, bool bias) {
    Linear linear{matrix(module, rows, cols), std::nullopt};
    if (bias) linear.bias = vector(module + ".bias", rows);
    return linear;
  }

  Norm norm(const std::string& module, int64_t size) {
    const bool plus_one = config_.norm_plus_one && !artifact_.norm_plus_one_baked();
    return {vector(module + ".weight", size), config_.norm_eps, plus_one};
  }

 private:
  Weight pack(const RawWeight& raw, const std::string& name, WeightUse use) {
    if (!is_finite(raw))
      fail_param(ErrorCode::kCorruptData, name, "{}: {} holds NaN or infinity; the file is damaged",
                 artifact_.path().string(), name);
    return backend_.pack(raw, use);
  }

  hub::ModelArtifact& artifact_;
  Backend& backend_;
  const DenseConfig& config_;
};

struct Layer {
  Norm input_norm;
  Linear q, k, v, o;
  std::optional<Norm> q_norm, k_norm, post_attention;
  int rope = 0;
  MlpSpec mlp;
};

Layer load_layer(Loader& load, const DenseConfig& c, int index) {
  const std::string at = fmt::format("layers.{}.", index), attention = at + "self_attn.";
  const int64_t q_width = int64_t{c.heads} * c.head_dim,
                kv_width = int64_t{c.kv_heads} * c.head_dim;
  Layer layer;
  layer.input_norm = load.norm(at + "input_layernorm", c.hidden);
  layer.q = load.linear(attention + "q_proj", q_width, c.hidden, c.qkv_bias);
  layer.k = load.linear(attention + "k_proj", kv_width, c.hidden, c.qkv_bias);
  layer.v = load.linear(attention + "v_proj", kv_width, c.hidden, c.qkv_bias);
  layer.o = load.linear(attention + "o_proj", c.hidden, q_width, c.o_bias);
  if (c.qk_norm) {
    layer.q_norm = load.norm(attention + "q_norm", c.head_dim);
    layer.k_norm = load.norm(attention + "k_norm", c.head_dim);
  }
  if (c.post_norms) {
    layer.post_attention = load.norm(at + "post_attention_layernorm", c.hidden);
    layer.mlp.post = load.norm(at + "post_feedforward_layernorm", c.hidden);
  }
  layer.rope = c.rope_of.empty() ? 0 : c.rope_of[size_t(index)];
  layer.mlp.pre = load.norm(at + c.pre_mlp_norm, c.hidden);
  layer.mlp.gate = load.linear(at + "mlp.gate_proj", c.intermediate, c.hidden, c.mlp_bias);
  layer.mlp.up = load.linear(at + "mlp.up_proj", c.intermediate, c.hidden, c.mlp_bias);
  layer.mlp.down = load.linear(at + "mlp.down_proj", c.hidden, c.intermediate, c.mlp_bias);
  layer.mlp.activation = c.activation;
  return layer;
}

class Decoder final : public Model {
 public:
  Decoder(std::string architecture, DenseConfig config, std::vector<Rope> ropes,
          hub::ModelArtifact& artifact, Backend& backend)
      : config_(std::move(config)), ropes_(std::move(ropes)) {
    info_ = {std::move(architecture), config_.layers, config_.hidden, config_.vocab,
             config_.max_positions};
    spec_ = {config_.heads, config_.kv_heads, config_.head_dim, config_.attention_scale,
             config_.attention_softcap};
    if (spec_.scale == 0) spec_.scale = 1 / std::sqrt(float(config_.head_dim));
    Loader load(artifact, backend, config_);
    table_ = load.matrix("embed_tokens", config_.vocab, config_.hidden, WeightUse::kTable);
    for (int i = 0; i < config_.layers; i++) layers_.push_back(load_layer(load, config_, i));
    head_.norm = load.norm("norm", config_.hidden);
    head_.weight =
        load.matrix(config_.tied ? "embed_tokens" : "lm_head", config_.vocab, config_.hidden);
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
    const Rope* rope = &ropes_[size_t(layer.rope)];
    const Linear* const qkv[] = {&layer.q, &layer.k, &layer.v};
    std::vector<Tensor> p = backend.project(x, &layer.input_norm, qkv);
    const Tensor q = backend.heads(std::move(p[0]), config_.head_dim, get(layer.q_norm), rope);
    const Tensor k = backend.heads(std::move(p[1]), config_.head_dim, get(layer.k_norm), rope);
    const Tensor a = backend.attend(state, q, k, p[2], spec_);
    const Tensor h = backend.add_output(a, layer.o, get(layer.post_attention), x);
    return backend.mlp(h, layer.mlp);
  }

  static const Norm* get(const std::optional<Norm>& norm) { return norm ? &*norm : nullptr; }

  DenseConfig config_;
  std::vector<Rope> ropes_;
  ModelInfo info_;
  AttentionSpec spec_;
  Weight table_;
  std::vector<Layer> layers_;
  Head head_;
};

// The llama3 scaling: long wavelengths are stretched by `factor`, short ones kept, those between
// interpolated. Source: the "llama3" rope type of config.json as published with Llama 3.1.
void scale_llama3(Rope& rope, const hub::ConfigReader& scaling) {
  const double factor = scaling.get_double("factor", 1, 1e6);
  const double low = scaling.get_double("low_freq_factor", 1e-3, 1e6, 1.0);
  const double high = scaling.get_double("high_freq_factor", 1e-3, 1e6, 4.0);
  const double original =
      double(scaling.get_int("original_max_position_embeddings", 1, kMaxExtent, 8192));
  if (!(high > low)) scaling.fail_key("high_freq_factor", "must exceed low_freq_factor");
  for (double& f : rope.inv_freq) {
    const double wavelength = 2 * std::numbers::pi / f;
    if (wavelength > original / low) {
      f /= factor;
    } else if (wavelength > original / high) {
      const double smooth = (original / wavelength - low) / (high - low);
      f = (1 - smooth) * f / factor + smooth * f;
    }
  }
}

void divide_by_table(Rope& rope, hub::ModelArtifact& artifact) {
  const std::string name = "rope_freqs.weight";
  if (!artifact.has(name)) return;
  const RawWeight stored = as_row(artifact.tensor(name));
  std::vector<float> divisors(size_t(stored.cols));
  decode_row(stored, 0, divisors);
  if (divisors.size() != rope.inv_freq.size())
    fail_param(ErrorCode::kCorruptData, name, "{}: {} has {} elements, the rope needs {}",
               artifact.path().string(), name, divisors.size(), rope.inv_freq.size());
  for (size_t i = 0; i < divisors.size(); i++) {
    if (!(divisors[i] > 0) || std::isinf(divisors[i]))
      fail_param(ErrorCode::kCorruptData, name, "{}: {} holds {}, must be positive",
                 artifact.path().string(), name, divisors[i]);
    rope.inv_freq[i] /= double(divisors[i]);
  }
}

}  // namespace

DenseConfig read_dense_config(const hub::ConfigReader& config) {
  DenseConfig c;
  c.hidden = int(config.get_int("hidden_size", 1, 1 << 20));
  c.layers = int(config.get_int("num_hidden_layers", 1, 4096));
  c.heads = int(config.get_int("num_attention_heads", 1, 4096));
  c.kv_heads = int(config.get_int("num_key_value_heads", 1, 4096, c.heads));
  c.head_dim = int(config.get_int("head_dim", 1, 512, std::max(1, c.hidden / c.heads)));
  c.intermediate = int(config.get_int("intermediate_size", 1, 1 << 22));
  c.vocab = int(config.get_int("vocab_size", 1, kMaxExtent));
  c.norm_eps = float(config.get_double("rms_norm_eps", 0, 1, 1e-6));
  c.max_positions = config.get_int("max_position_embeddings", 1, int64_t{1} << 40, 4096);
  c.tied = config.get_bool("tie_word_embeddings", false);
  c.activation = read_activation(config);
  if (c.heads % c.kv_heads != 0)
    config.fail_key(
        "num_attention_heads",
        fmt::format("is {}, no multiple of num_key_value_heads ({})", c.heads, c.kv_heads));
  if (c.head_dim % 2 != 0)
    fail_param(ErrorCode::kUnsupported, "head_dim", "{}: head_dim is {}, must be even for rope",
               config.origin(), c.head_dim);
  return c;
}

Rope plain_rope(double theta, int head_dim) {
  Rope rope;
  for (int i = 0; i < head_dim; i += 2)
    rope.inv_freq.push_back(std::pow(theta, -double(i) / head_dim));
  return rope;
}

Rope read_rope(hub::ModelArtifact& artifact, const hub::ConfigReader& config, int head_dim) {
  Rope rope = plain_rope(config.get_double("rope_theta", 1e-3, 1e12, 10000.0), head_dim);
  if (const double part = config.get_double("partial_rotary_factor", 0, 1, 1.0); part != 1)
    fail_param(ErrorCode::kUnsupported, "partial_rotary_factor",
               "{}: partial_rotary_factor is {}; only ropes over the whole head are supported",
               config.origin(), part);
  if (const auto scaling_object = config.get_object("rope_scaling")) {
    const hub::ConfigReader& scaling = *scaling_object;
    const std::string type = scaling.get_string("rope_type", scaling.get_string("type", "default"));
    if (type == "linear") {
      const double factor = scaling.get_double("factor", 1e-3, 1e6);
      for (double& f : rope.inv_freq) f /= factor;
    } else if (type == "llama3") {
      scale_llama3(rope, scaling);
    } else if (type != "default") {
      fail_param(ErrorCode::kUnsupported, "rope_scaling",
                 "{}: rope_scaling type \"{}\" is not supported (default, linear, llama3 are)",
                 config.origin(), type);
    }
  }
  divide_by_table(rope, artifact);
  return rope;
}

std::unique_ptr<Model> build_decoder(std::string architecture, const DenseConfig& config,
                                     std::vector<Rope> ropes, hub::ModelArtifact& artifact,
                                     Backend& backend) {
  return std::make_unique<Decoder>(std::move(architecture), config, std::move(ropes), artifact,
                                   backend);
}

}  // namespace mantou::models
