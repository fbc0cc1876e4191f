// Seed-OSS: llama with biases on q, k and v.
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_seed_oss(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  c.qkv_bias = config.get_bool("attention_bias", false);
  c.o_bias = config.get_bool("attention_out_bias", false);
  c.mlp_bias = config.get_bool("mlp_bias", false);
  return build_decoder(c, {read_rope(artifact, config, c.head_dim)}, artifact, backend);
}

}  // namespace mantou::models
