// Gemma 3 text: four norms a layer of the (1 + w) kind, normed heads, GeGLU, embeddings times
// sqrt(hidden); five sliding layers to each full one, with a rope base of their own.
#include <cmath>

#include "base/error.h"
#include "base/half.h"
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {
namespace {

// layer_types where the checkpoint has it, else every `sliding_window_pattern`-th layer is full.
std::vector<bool> sliding_layers(const hub::ConfigReader& config, int layers) {
  std::vector<bool> sliding(size_t(layers), false);
  if (config.has("layer_types")) {
    const std::vector<std::string> types = config.get_string_array("layer_types", 4096);
    if (types.size() != size_t(layers))
      config.fail_key("layer_types",
                      fmt::format("has {} entries for {} layers", types.size(), layers));
    for (size_t i = 0; i < types.size(); i++) sliding[i] = types[i] == "sliding_attention";
    return sliding;
  }
  const int64_t pattern = config.get_int("sliding_window_pattern", 1, 4096, 6);
  for (size_t i = 0; i < sliding.size(); i++) sliding[i] = (int64_t(i) + 1) % pattern != 0;
  return sliding;
}

}  // namespace

std::unique_ptr<Model> load_gemma3(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DenseConfig c = read_dense_config(config);
  c.tied = !artifact.has("lm_head.weight");
  c.qk_norm = c.post_norms = c.norm_plus_one = true;
  c.pre_mlp_norm = "pre_feedforward_layernorm";
  c.activation = Activation::kGeluTanh;
  // The model was trained with this factor rounded to bf16, and its reference implementations round
  // it (docs/decisions/0006-gemma-embedding-scale.md).
  c.embed_scale = bf16_to_f32(f32_to_bf16(std::sqrt(float(c.hidden))));
  c.attention_scale =
      1 / std::sqrt(float(config.get_double("query_pre_attn_scalar", 1, 1e6, c.head_dim)));
  c.attention_softcap = float(config.get_double("attn_logit_softcapping", 0, 1e6, 0.0));
  c.final_softcap = float(config.get_double("final_logit_softcapping", 0, 1e6, 0.0));

  const int64_t window = config.get_int("sliding_window", 1, int64_t{1} << 40, 512);
  for (const bool sliding : sliding_layers(config, c.layers)) {
    c.windows.push_back(sliding ? window : 0);
    c.rope_of.push_back(sliding ? 1 : 0);
  }
  const double local = config.get_double("rope_local_base_freq", 1e-3, 1e12, 10000.0);
  return build_decoder("gemma3_text", c,
                       {read_rope(artifact, config, c.head_dim), plain_rope(local, c.head_dim)},
                       artifact, backend);
}

}  // namespace mantou::models
