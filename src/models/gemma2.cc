// Gemma 2: four norms a layer of the (1 + w) kind, soft caps of scores and logits, sliding and full
// layers in turns.
#include <cmath>

#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_gemma2(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  c.tied = !artifact.has("lm_head.weight");
  set_gemma_norms(c);
  c.activation = Activation::kGeluTanh;
  c.embed_scale = std::sqrt(float(c.hidden));
  c.attention_scale =
      float(1 / std::sqrt(config.get_double("query_pre_attn_scalar", 1, 1e6, 144.0)));
  c.attention_softcap = float(config.get_double("attn_logit_softcapping", 0, 1e6, 50.0));
  c.final_softcap = float(config.get_double("final_logit_softcapping", 0, 1e6, 30.0));
  if (const int64_t window = read_window(config); window > 0)
    set_windows(c, sliding_layers(config, c.layers, 2), window);
  c.mlx_lm_slides = false;
  return build_decoder(c, {read_rope(artifact, config, c.head_dim)}, artifact, backend);
}

}  // namespace mantou::models
