// StarCoder2: layer norms, biases everywhere, an MLP without a gate.
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_starcoder2(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  c.norm = NormKind::kLayer;
  c.norm_bias = true;
  c.norm_eps = float(config.get_double("norm_epsilon", 0, 1, 1e-5));
  c.qkv_bias = c.o_bias = c.mlp_bias = config.get_bool("use_bias", true);
  c.gated = false;
  if (!config.has("hidden_act")) c.activation = Activation::kGeluErf;
  c.names.up = "mlp.c_fc";
  c.names.down = "mlp.c_proj";
  slide_everywhere(c, config);
  return build_decoder(c, {read_rope(artifact, config, c.head_dim, 1e5)}, artifact, backend);
}

}  // namespace mantou::models
