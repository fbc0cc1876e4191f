// Hunyuan (dense): llama with heads normed behind the rope, whose base grows with alpha.
#include <cmath>

#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_hunyuan(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  c.qkv_bias = c.o_bias = config.get_bool("attention_bias", false);
  if (config.get_bool("use_qk_norm", true)) {
    c.qk_norm = QkNorm::kHeadAfterRope;
    c.names.q_norm = "self_attn.query_layernorm";
    c.names.k_norm = "self_attn.key_layernorm";
  }
  double theta = config.get_double("rope_theta", 1e-3, 1e12, 10000.0);
  if (const auto scaling = config.get_object("rope_scaling")) {
    const double alpha = scaling->get_double("alpha", 1e-3, 1e9, 1.0);
    theta *= std::pow(alpha, double(c.head_dim) / (c.head_dim - 2));
  }
  return build_decoder("hunyuan_v1_dense", c, {plain_rope(theta, c.head_dim)}, artifact, backend);
}

}  // namespace mantou::models
