// Cohere2 (Command R7B, Aya): one layer norm before attention and MLP, which run side by side;
// sliding layers with rope in neighbouring pairs, full layers without.
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_cohere2(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  c.tied = !artifact.has("lm_head.weight");
  c.norm = NormKind::kLayer;
  c.norm_eps = float(config.get_double("layer_norm_eps", 0, 1, 1e-5));
  c.norm_bias = config.get_bool("layer_norm_bias", false);
  c.qkv_bias = c.o_bias = config.get_bool("attention_bias", false);
  c.parallel = c.residual_last = true;
  c.widen = AttentionSpec::Widen::kF16;
  c.interleaved_rope = true;
  c.logits_scale = float(config.get_double("logit_scale", 1e-6, 1e6, 0.0625));
  const std::vector<bool> sliding = sliding_layers(config, c.layers, 4);
  set_windows(c, sliding, read_window(config, 4096));
  set_ropes(c, sliding, 0, -1);
  return build_decoder(c, {read_rope(artifact, config, c.head_dim, 50000)}, artifact, backend);
}

}  // namespace mantou::models
