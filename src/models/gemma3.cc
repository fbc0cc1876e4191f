// Gemma 3 text: four norms a layer of the (1 + w) kind, normed heads, GeGLU, embeddings times
// sqrt(hidden); five sliding layers to each full one, with a rope base of their own.
#include <cmath>

#include "base/error.h"
#include "base/half.h"
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_gemma3(hub::ModelArtifact& artifact, Backend& backend) {
  // The published configurations of 4B and larger leave out what their class has by default.
  const nlohmann::json defaults = {{"num_attention_heads", 8},
                                   {"num_key_value_heads", 4},
                                   {"head_dim", 256},
                                   {"vocab_size", 262208},
                                   {"max_position_embeddings", 131072}};
  nlohmann::json filled = artifact.config();
  for (const auto& [key, value] : defaults.items())
    if (!filled.contains(key) || filled[key].is_null()) filled[key] = value;
  const hub::ConfigReader config(filled, hub::config_reader(artifact).origin());
  if (config.get_bool("use_bidirectional_attention", false))
    fail_param(ErrorCode::kUnsupported, "use_bidirectional_attention",
               "{}: use_bidirectional_attention is true: an embedding model, not one that writes",
               config.origin());
  DecoderConfig c = read_decoder_config(config);
  c.tied = !artifact.has("lm_head.weight");
  c.qk_norm = QkNorm::kHead;
  set_gemma_norms(c);
  c.clip_f16 = true;
  c.activation = Activation::kGeluTanh;
  // The model was trained with this factor rounded to bf16, and its reference implementations round
  // it in any precision (docs/decisions/0006-gemma-embedding-scale.md).
  c.embed_scale = bf16_to_f32(f32_to_bf16(std::sqrt(float(c.hidden))));
  c.attention_scale =
      float(std::pow(config.get_double("query_pre_attn_scalar", 1, 1e6, c.head_dim), -0.5));
  c.attention_softcap = float(config.get_double("attn_logit_softcapping", 0, 1e6, 0.0));
  c.final_softcap = float(config.get_double("final_logit_softcapping", 0, 1e6, 0.0));
  const std::vector<bool> sliding = sliding_layers(config, c.layers, 6);
  set_windows(c, sliding, read_window(config, 512));
  set_ropes(c, sliding, 1, 0);
  const double local = config.get_double("rope_local_base_freq", 1e-3, 1e12, 10000.0);
  return build_decoder(
      c, {read_rope(artifact, config, c.head_dim, 1e6), plain_rope(local, c.head_dim)}, artifact,
      backend);
}

}  // namespace mantou::models
