// StarCoder2: layer norms, biases everywhere, an MLP without a gate.
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_starcoder2(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config, true);
  c.norm = NormKind::kLayer;
  c.norm_bias = true;
  c.norm_eps = float(config.get_double("norm_epsilon", 0, 1, 1e-5));
  c.qkv_bias = c.o_bias = c.mlp_bias = config.get_bool("use_bias", true);
  c.gated = false;
  c.activation = config.get_string("hidden_act", "gelu") == "gelu" ? Activation::kGeluErf
                                                                   : Activation::kGeluTanh;
  c.names.up = "mlp.c_fc";
  c.names.down = "mlp.c_proj";
  if (const int64_t window = config.get_int("sliding_window", 0, int64_t{1} << 40, 0); window > 0)
    set_windows(c, std::vector<bool>(size_t(c.layers), true), window);
  return build_decoder("starcoder2", c, {read_rope(artifact, config, c.head_dim, 1e5)}, artifact,
                       backend);
}

}  // namespace mantou::models
