// EXAONE 4: norms behind attention and MLP only, normed heads; in the hybrid models sliding layers
// with rope and full ones without.
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {
namespace {

// sliding_window_pattern is a number, or a word of L(ocal) and G(lobal) that repeats.
std::vector<bool> hybrid_layers(const hub::ConfigReader& config, int layers) {
  if (config.has("layer_types") || !config.has_string("sliding_window_pattern"))
    return sliding_layers(config, layers, 4);
  const std::string word = config.get_string("sliding_window_pattern");
  if (word.empty() || word.find_first_not_of("LG") != std::string::npos)
    config.fail_key("sliding_window_pattern", "must be made of L and G");
  std::vector<bool> sliding;
  for (size_t i = 0; i < size_t(layers); i++) sliding.push_back(word[i % word.size()] == 'L');
  return sliding;
}

}  // namespace

std::unique_ptr<Model> load_exaone4(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  c.qk_norm = QkNorm::kHead;
  set_post_norms(c);
  const int64_t window = read_window(config);
  if (window > 0) {
    const std::vector<bool> sliding = hybrid_layers(config, c.layers);
    set_windows(c, sliding, window);
    set_ropes(c, sliding, 0, -1);
  }
  return build_decoder(c, {read_rope(artifact, config, c.head_dim)}, artifact, backend);
}

}  // namespace mantou::models
