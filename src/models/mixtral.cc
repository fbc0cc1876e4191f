// Mixtral: llama with experts, weighted among those chosen.
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_mixtral(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  c.moe = read_moe_config(config, c);
  c.moe->weights = MoeSpec::Weights::kOfChosen;
  c.moe->router = "block_sparse_moe.gate";
  c.moe->stacked = "block_sparse_moe.switch_mlp.";
  c.moe->single = "block_sparse_moe.experts.{}.";
  c.moe->gate = "w1";
  c.moe->up = "w3";
  c.moe->down = "w2";
  slide_everywhere(c, config);
  return build_decoder(c, {read_rope(artifact, config, c.head_dim, 1e6)}, artifact, backend);
}

}  // namespace mantou::models
