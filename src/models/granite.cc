// Granite: llama with multipliers on embeddings, scores, residuals and logits.
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_granite(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  c.qkv_bias = c.o_bias = config.get_bool("attention_bias", false);
  c.mlp_bias = config.get_bool("mlp_bias", false);
  c.embed_scale = float(config.get_double("embedding_multiplier", 0, 1e6, 1.0));
  c.attention_scale = float(config.get_double("attention_multiplier", 0, 1e6, 0.0));
  c.residual_scale = float(config.get_double("residual_multiplier", 0, 1e6, 1.0));
  c.logits_divisor = float(config.get_double("logits_scaling", 1e-6, 1e6, 1.0));
  return build_decoder(c, {read_rope(artifact, config, c.head_dim)}, artifact, backend);
}

}  // namespace mantou::models
