// Qwen2 and Qwen2.5: the llama layer with biases on q, k and v.
#include "base/error.h"
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_qwen2(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DenseConfig c = read_dense_config(config);
  c.qkv_bias = true;
  // sliding_window is present but off in every published checkpoint (use_sliding_window: false).
  if (config.get_bool("use_sliding_window", false))
    fail_param(ErrorCode::kUnsupported, "use_sliding_window",
               "{}: use_sliding_window is true, which is not supported for qwen2", config.origin());
  return build_decoder("qwen2", c, {read_rope(artifact, config, c.head_dim)}, artifact, backend);
}

}  // namespace mantou::models
