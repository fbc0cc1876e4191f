// Qwen3 dense: the llama layer with an RMS norm on each head of q and k before rope.
#include "base/error.h"
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_qwen3(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DenseConfig c = read_dense_config(config);
  c.qk_norm = true;
  c.qkv_bias = config.get_bool("attention_bias", false);
  c.o_bias = c.qkv_bias;
  if (config.get_bool("use_sliding_window", false))
    fail_param(ErrorCode::kUnsupported, "use_sliding_window",
               "{}: use_sliding_window is true, which is not supported for qwen3", config.origin());
  return build_decoder("qwen3", c, {read_rope(artifact, config, c.head_dim)}, artifact, backend);
}

}  // namespace mantou::models
