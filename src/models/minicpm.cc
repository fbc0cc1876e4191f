// MiniCPM: llama with multipliers on embeddings, residuals and, where the head is its own, on the
// logits.
#include <cmath>

#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_minicpm(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  c.embed_scale = float(config.get_double("scale_emb", 0, 1e6, 1.0));
  c.residual_scale =
      float(config.get_double("scale_depth", 0, 1e6, 1.0) / std::sqrt(double(c.layers)));
  if (!c.tied)
    c.head_input_divisor = float(c.hidden / config.get_double("dim_model_base", 1, 1e6, c.hidden));
  return build_decoder(c, {read_rope(artifact, config, c.head_dim, 1e6)}, artifact, backend);
}

}  // namespace mantou::models
