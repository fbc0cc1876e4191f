// Qwen2 and Qwen2.5: llama with biases on q, k and v.
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_qwen2(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  c.qkv_bias = true;
  refuse_window(config);
  return build_decoder(c, {read_rope(artifact, config, c.head_dim, 1e6)}, artifact, backend);
}

}  // namespace mantou::models
