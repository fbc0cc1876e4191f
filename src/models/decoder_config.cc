#include <algorithm>

#include "base/error.h"
#include "hub/json_file.h"
#include "models/layers.h"

namespace mantou::models {
namespace {

constexpr int64_t kMaxExtent = 1 << 24;

struct ActivationName {
  std::string_view name;  // hidden_act
  Activation activation;
};
constexpr ActivationName kActivations[] = {{"silu", Activation::kSilu},
                                           {"swish", Activation::kSilu},
                                           {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                           {"gelu_new", Activation::kGeluTanh},
                                           {"gelu", Activation::kGeluErf}};

Activation read_activation(const hub::ConfigReader& config) {
  const std::string name =
      config.get_string("hidden_activation", config.get_string("hidden_act", "silu"));
  for (const ActivationName& known : kActivations)
    if (known.name == name) return known.activation;
  fail_param(ErrorCode::kUnsupported, "hidden_act",
             "{}: hidden_act \"{}\" is not supported (silu, gelu_pytorch_tanh, gelu are)",
             config.origin(), hub::printable(name));
}

}  // namespace

DecoderConfig read_decoder_config(const hub::ConfigReader& config) {
  DecoderConfig c;
  c.hidden = int(config.get_int("hidden_size", 1, 1 << 20));
  c.layers = int(config.get_int("num_hidden_layers", 1, 4096));
  c.heads = int(config.get_int("num_attention_heads", 1, 4096));
  c.kv_heads = int(config.get_int("num_key_value_heads", 1, 4096, c.heads));
  c.head_dim = int(config.get_int("head_dim", 1, 512, std::max(1, c.hidden / c.heads)));
  c.intermediate = int(config.get_int("intermediate_size", 1, 1 << 22));
  c.vocab = int(config.get_int("vocab_size", 1, kMaxExtent));
  c.norm_eps = float(config.get_double("rms_norm_eps", 0, 1, 1e-6));
  c.max_positions = config.get_int("max_position_embeddings", 1, kMaxPositions, 4096);
  c.tied = config.get_bool("tie_word_embeddings", false);
  c.activation = read_activation(config);
  if (config.has("layer_types")) sliding_layers(config, c.layers, 1);  // checks them
  if (c.heads % c.kv_heads != 0)
    config.fail_key(
        "num_attention_heads",
        fmt::format("is {}, no multiple of num_key_value_heads ({})", c.heads, c.kv_heads));
  if (c.head_dim % 2 != 0)
    fail_param(ErrorCode::kUnsupported, "head_dim", "{}: head_dim is {}, must be even for rope",
               config.origin(), c.head_dim);
  return c;
}

int64_t read_window(const hub::ConfigReader& config, int64_t fallback) {
  return config.get_int("sliding_window", 0, kMaxPositions, fallback);
}

std::vector<bool> sliding_layers(const hub::ConfigReader& config, int layers, int64_t fallback) {
  std::vector<bool> sliding(size_t(layers), false);
  if (config.has("layer_types")) {
    const std::vector<std::string> types = config.get_string_array("layer_types", 4096);
    if (types.size() != size_t(layers))
      config.fail_key("layer_types",
                      fmt::format("has {} entries for {} layers", types.size(), layers));
    for (size_t i = 0; i < types.size(); i++) {
      sliding[i] = types[i] == "sliding_attention";
      if (!sliding[i] && types[i] != "full_attention")
        config.fail_key("layer_types", fmt::format("names \"{}\"; sliding_attention and "
                                                   "full_attention are supported",
                                                   hub::printable(types[i])));
    }
    return sliding;
  }
  const int64_t pattern = config.get_int("sliding_window_pattern", 1, 4096, fallback);
  for (size_t i = 0; i < sliding.size(); i++) sliding[i] = (int64_t(i) + 1) % pattern != 0;
  return sliding;
}

void set_windows(DecoderConfig& decoder, const std::vector<bool>& sliding, int64_t window) {
  decoder.windows.clear();
  for (const bool slides : sliding) decoder.windows.push_back(slides ? window : 0);
}

void set_ropes(DecoderConfig& decoder, const std::vector<bool>& sliding, int sliding_rope,
               int full_rope) {
  decoder.rope_of.clear();
  for (const bool slides : sliding) decoder.rope_of.push_back(slides ? sliding_rope : full_rope);
}

void slide_everywhere(DecoderConfig& decoder, const hub::ConfigReader& config) {
  const int64_t window = read_window(config);
  if (window > 0) decoder.windows.assign(size_t(decoder.layers), window);
  decoder.mlx_lm_slides = false;
}

void set_gemma_norms(DecoderConfig& decoder) {
  decoder.norm_plus_one = true;
  decoder.names.post_attention_norm = "post_attention_layernorm";
  decoder.names.pre_mlp_norm = "pre_feedforward_layernorm";
  decoder.names.post_mlp_norm = "post_feedforward_layernorm";
}

void set_post_norms(DecoderConfig& decoder) {
  decoder.names.input_norm.clear();
  decoder.names.post_attention_norm = "post_attention_layernorm";
  decoder.names.pre_mlp_norm.clear();
  decoder.names.post_mlp_norm = "post_feedforward_layernorm";
}

void refuse_window(const hub::ConfigReader& config) {
  if (config.get_bool("use_sliding_window", false))
    fail_param(ErrorCode::kUnsupported, "use_sliding_window",
               "{}: use_sliding_window is true, which is not supported for {}", config.origin(),
               config.get_string("model_type"));
}

MoeConfig read_moe_config(const hub::ConfigReader& config, const DecoderConfig& decoder) {
  MoeConfig moe;
  const char* key = config.has("num_local_experts") ? "num_local_experts" : "num_experts";
  moe.experts = int(config.get_int(key, 1, 1 << 16));
  moe.top_k = int(config.get_int("num_experts_per_tok", 1, moe.experts));
  moe.intermediate = int(config.get_int("moe_intermediate_size", 1, 1 << 22, decoder.intermediate));
  const int64_t step = config.get_int("decoder_sparse_step", 1, 4096, 1);
  const std::vector<int64_t> dense = config.get_int_array("mlp_only_layers", 0, 4096, 4096);
  for (int64_t i = 0; i < decoder.layers; i++)
    moe.sparse.push_back((i + 1) % step == 0 &&
                         std::find(dense.begin(), dense.end(), i) == dense.end());
  return moe;
}

}  // namespace mantou::models
