// GLM-4 (0414): norms before and behind attention and MLP, gate and up in one matrix, rope over a
// part of the head in neighbouring pairs.
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_glm4(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  config.get_double("partial_rotary_factor", 0, 1);  // has no default that all readers share
  DecoderConfig c = read_decoder_config(config);
  c.tied = false;
  c.qkv_bias = config.get_bool("attention_bias", false);
  c.names.post_attention_norm = "post_self_attn_layernorm";
  c.names.post_mlp_norm = "post_mlp_layernorm";
  c.interleaved_rope = true;
  return build_decoder(c, {read_rope(artifact, config, c.head_dim)}, artifact, backend);
}

}  // namespace mantou::models
