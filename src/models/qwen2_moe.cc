// Qwen1.5-MoE and Qwen2-MoE: qwen2 with experts and a gated shared expert.
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_qwen2_moe(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  c.qkv_bias = true;
  refuse_window(config);
  MoeConfig moe = read_moe_config(config, c);
  moe.shared_intermediate =
      int(config.get_int("shared_expert_intermediate_size", 1, 1 << 22, moe.intermediate));
  if (config.get_bool("norm_topk_prob", false)) moe.weights = MoeSpec::Weights::kOfAllRenormalized;
  c.moe = moe;
  return build_decoder(c, {read_rope(artifact, config, c.head_dim, 1e6)}, artifact, backend);
}

}  // namespace mantou::models
