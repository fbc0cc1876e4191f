// Qwen3: llama with an RMS norm of each head of q and k.
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_qwen3(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  c.qk_norm = QkNorm::kHead;
  c.qkv_bias = c.o_bias = config.get_bool("attention_bias", false);
  refuse_window(config);
  return build_decoder(c, {read_rope(artifact, config, c.head_dim)}, artifact, backend);
}

}  // namespace mantou::models
