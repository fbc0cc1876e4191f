// Hunyuan (dense): llama with heads normed behind the rope, whose base grows with alpha.
#include <cmath>

#include "base/error.h"
#include "hub/json_file.h"
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
    const std::string type =
        scaling->get_string("rope_type", scaling->get_string("type", "dynamic"));
    if (type != "dynamic" && type != "default" && type != "none")
      fail_param(ErrorCode::kUnsupported, "rope_scaling",
                 "{}: rope_scaling type \"{}\" is not supported for hunyuan_v1_dense (dynamic is)",
                 config.origin(), hub::printable(type));
    const double alpha = scaling->get_double("alpha", 1e-3, 1e9, 1.0);
    theta *= std::pow(alpha, double(c.head_dim) / (c.head_dim - 2));
  }
  Rope rope = plain_rope(theta, c.head_dim);
  rope.recipe.kind = RopeRecipe::Kind::kScaledBase;
  return build_decoder(c, {rope}, artifact, backend);
}

}  // namespace mantou::models
