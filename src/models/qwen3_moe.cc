// Qwen3-MoE: qwen3 with experts in some or all layers.
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_qwen3_moe(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  c.qk_norm = QkNorm::kHead;
  c.qkv_bias = c.o_bias = config.get_bool("attention_bias", false);
  refuse_window(config);
  c.moe = read_moe_config(config, c);
  if (config.get_bool("norm_topk_prob", true))
    c.moe->weights = MoeSpec::Weights::kOfAllRenormalized;
  c.moe->from_front = false;
  return build_decoder(c, {read_rope(artifact, config, c.head_dim)}, artifact, backend);
}

}  // namespace mantou::models
