// OLMoE: experts; q and k are normed as whole vectors.
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_olmoe(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  if (config.has("clip_qkv")) config.fail_key("clip_qkv", "is not supported; only null is");
  DecoderConfig c = read_decoder_config(config);
  c.qkv_bias = c.o_bias = config.get_bool("attention_bias", false);
  c.qk_norm = QkNorm::kWhole;
  c.moe = read_moe_config(config, c);
  if (config.get_bool("norm_topk_prob", false))
    c.moe->weights = MoeSpec::Weights::kOfAllRenormalized;
  return build_decoder(c, {read_rope(artifact, config, c.head_dim)}, artifact, backend);
}

}  // namespace mantou::models
