// OLMo 3: OLMo 2 with three sliding layers to each full one; rope_scaling is for the full ones
// alone.
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_olmo3(hub::ModelArtifact& artifact, Backend& backend) {
  constexpr double kTheta = 500000;
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  c.qkv_bias = c.o_bias = config.get_bool("attention_bias", false);
  c.qk_norm = QkNorm::kWhole;
  set_post_norms(c);
  const std::vector<bool> sliding = sliding_layers(config, c.layers, 4);
  set_windows(c, sliding, read_window(config, 4096));
  set_ropes(c, sliding, 1, 0);
  const double theta = config.get_double("rope_theta", 1e-3, 1e12, kTheta);
  const double local = config.get_double("rope_local_base_freq", 1e-3, 1e12, theta);
  return build_decoder(
      c, {read_rope(artifact, config, c.head_dim, kTheta), plain_rope(local, c.head_dim)}, artifact,
      backend);
}

}  // namespace mantou::models
