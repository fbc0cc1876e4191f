// ERNIE 4.5 (dense): llama with rope in neighbouring pairs.
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_ernie4_5(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  c.qkv_bias = c.o_bias = c.mlp_bias = config.get_bool("use_bias", false);
  c.interleaved_rope = true;
  return build_decoder(c, {read_rope(artifact, config, c.head_dim)}, artifact, backend);
}

}  // namespace mantou::models
