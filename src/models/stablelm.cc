// StableLM: layer norms, rope over a part of the head, perhaps normed heads, perhaps attention and
// MLP side by side.
#include <cmath>

#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_stablelm(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  config.get_double("partial_rotary_factor", 0, 1);  // has no default that all readers share
  DecoderConfig c = read_decoder_config(config);
  c.norm = NormKind::kLayer;
  c.widen = AttentionSpec::Widen::kAlways;
  c.attention_scale = float(std::sqrt(1.0 / c.head_dim));
  c.norm_bias = true;
  c.norm_eps = float(config.get_double("layer_norm_eps", 0, 1, 1e-5));
  c.qkv_bias = config.get_bool("use_qkv_bias", false);
  c.parallel = config.get_bool("use_parallel_residual", false);
  if (config.get_bool("qk_layernorm", false)) {
    c.qk_norm = QkNorm::kHead;
    c.names.q_norm = "self_attn.q_layernorm";
    c.names.k_norm = "self_attn.k_layernorm";
  }
  return build_decoder(c, {read_rope(artifact, config, c.head_dim)}, artifact, backend);
}

}  // namespace mantou::models
