// Llama and what shares its layer: Mistral, SmolLM2, MiniCPM5 and others under model_type "llama".
// Pre-norm decoder: x += o(attend(rope(q), rope(k), v)); x += down(silu(gate) · up).
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_llama(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  c.qkv_bias = config.get_bool("attention_bias", false);
  c.o_bias = c.qkv_bias;
  c.mlp_bias = config.get_bool("mlp_bias", false);
  // Mistral slides in every layer unless layer_types says otherwise; llama ignores the key without
  // it.
  const int64_t window = read_window(config);
  if (window > 0 && config.has("layer_types"))
    set_windows(c, sliding_layers(config, c.layers, 1), window);
  else if (config.get_string("model_type") == "mistral")
    slide_everywhere(c, config);
  return build_decoder(c, {read_rope(artifact, config, c.head_dim)}, artifact, backend);
}

}  // namespace mantou::models
