// gpt-oss: experts with biases and a clamped SwiGLU, attention sinks, sliding and full layers in
// turns.
#include <cmath>

#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_gpt_oss(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  c.norm_eps = float(config.get_double("rms_norm_eps", 0, 1, 1e-5));
  c.qkv_bias = c.o_bias = true;
  c.sinks = true;
  c.attention_scale = float(1 / std::sqrt(double(c.head_dim)));
  c.activation = Activation::kSwigluOai;
  constexpr double kLimit = 7;  // that Activation::kSwigluOai clamps to
  if (config.get_double("swiglu_limit", 0, 1e9, kLimit) != kLimit)
    config.fail_key("swiglu_limit", "must be 7");
  c.moe = read_moe_config(config, c);
  c.moe->weights = MoeSpec::Weights::kOfChosen;
  c.moe->from_front = false;
  c.moe->bias = true;
  c.moe->router = "mlp.router";
  c.moe->stacked = "mlp.experts.";
  set_windows(c, sliding_layers(config, c.layers, 2), read_window(config, 128));
  return build_decoder(c, {read_rope(artifact, config, c.head_dim, 150000)}, artifact, backend);
}

}  // namespace mantou::models
