// Phi-3 and Phi-4: llama with q, k, v and gate, up in one matrix each, long ropes, perhaps over a
// part of the head.
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_phi3(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  if (const int64_t window = read_window(config); window > 0 && window < c.max_positions)
    set_windows(c, std::vector<bool>(size_t(c.layers), true), window);
  c.mlx_lm_slides = false;
  return build_decoder(c, {read_rope(artifact, config, c.head_dim)}, artifact, backend);
}

}  // namespace mantou::models
