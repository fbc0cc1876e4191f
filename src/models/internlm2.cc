// InternLM2: llama under other names, with q, k and v in one matrix, grouped by key head.
#include "models/families.h"
#include "models/layers.h"

namespace mantou::models {

std::unique_ptr<Model> load_internlm2(hub::ModelArtifact& artifact, Backend& backend) {
  const hub::ConfigReader config = hub::config_reader(artifact);
  DecoderConfig c = read_decoder_config(config);
  c.qkv_bias = c.o_bias = config.get_bool("bias", false);
  // GGUF files hold the parts by themselves, under the common names.
  if (artifact.has("tok_embeddings.weight")) {
    c.grouped_qkv = true;
    c.embed = "tok_embeddings";
    c.lm_head = "output";
    c.names.input_norm = "attention_norm";
    c.names.pre_mlp_norm = "ffn_norm";
    c.names.attention = "attention.";
    c.names.qkv = "wqkv";
    c.names.o = "wo";
    c.names.gate = "feed_forward.w1";
    c.names.up = "feed_forward.w3";
    c.names.down = "feed_forward.w2";
  }
  return build_decoder(c, {read_rope(artifact, config, c.head_dim)}, artifact, backend);
}

}  // namespace mantou::models
