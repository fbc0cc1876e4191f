// Gemma: llama with norms of the (1 + w) kind, a GeGLU and embeddings times sqrt(hidden).
#include <cmath>

#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_gemma(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  c.tied = !artifact.has("lm_head.weight");
  c.norm_plus_one = true;
  // mlx-lm's reading of a configuration that does not say.
  if (!config.has("hidden_activation") && !config.has("hidden_act"))
    c.activation = Activation::kGeluErf;
  c.embed_scale = std::sqrt(float(c.hidden));
  return build_decoder(c, {read_rope(artifact, config, c.head_dim)}, artifact, backend);
}

}  // namespace mantou::models
