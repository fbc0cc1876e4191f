// SmolLM3: llama, of which some layers have no rope.
#include "base/error.h"
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_smollm3(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  refuse_window(config);
  DecoderConfig c = read_decoder_config(config);
  c.qkv_bias = c.o_bias = config.get_bool("attention_bias", false);
  c.mlp_bias = config.get_bool("mlp_bias", false);
  std::vector<int64_t> with_rope = config.get_int_array("no_rope_layers", 0, 1, 4096);
  const int64_t interval = config.get_int("no_rope_layer_interval", 1, 4096, 4);
  for (int64_t i = 0; with_rope.empty() && i < c.layers; i++)
    c.rope_of.push_back((i + 1) % interval != 0 ? 0 : -1);
  for (const int64_t has_rope : with_rope) c.rope_of.push_back(has_rope ? 0 : -1);
  if (c.rope_of.size() != size_t(c.layers))
    config.fail_key("no_rope_layers",
                    fmt::format("has {} entries for {} layers", with_rope.size(), c.layers));
  return build_decoder(c, {read_rope(artifact, config, c.head_dim)}, artifact, backend);
}

}  // namespace mantou::models
