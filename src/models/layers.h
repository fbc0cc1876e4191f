// What the families share: reading a dense configuration, loading weights by name, and the decoder
// made of attention and gated MLP blocks. A family file says what differs, see
// docs/adding-a-model.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/config_reader.h"
#include "hub/model_artifact.h"
#include "models/model.h"

namespace mantou::models {

// config.json of a dense decoder with the defaults most families share. A family changes fields
// before it builds.
struct DenseConfig {
  int hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0, vocab = 0;
  float norm_eps = 1e-6f;
  int64_t max_positions = 0;
  bool tied = false;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool qk_norm = false;        // RMS norm of each head of q and k
  bool post_norms = false;     // Gemma's sandwich: norms behind attention and MLP, too
  bool norm_plus_one = false;  // weights store w of (1 + w)
  Activation activation = Activation::kSilu;
  float embed_scale = 1;
  float attention_scale = 0;  // 0: head_dim^-1/2
  float attention_softcap = 0, final_softcap = 0;
  std::string pre_mlp_norm = "post_attention_layernorm";  // the tensor's name

  // Per layer; empty: every layer is full attention with the same rope.
  std::vector<int64_t> windows;  // 0: full attention
  std::vector<int> rope_of;      // index into the ropes given to build_decoder
};

// Reads and checks what all dense families have in common.
DenseConfig read_dense_config(const hub::ConfigReader& config);

// The rope of the configuration: rope_theta, rope_scaling types "default", "linear" and "llama3"
// (other types and partial_rotary_factor are errors that name them); the tensor rope_freqs.weight
// of GGUF files divides the frequencies where it is present.
Rope read_rope(hub::ModelArtifact& artifact, const hub::ConfigReader& config, int head_dim);
Rope plain_rope(double theta, int head_dim);

// A decoder of `config.layers` layers over `ropes`.
std::unique_ptr<Model> build_decoder(std::string architecture, const DenseConfig& config,
                                     std::vector<Rope> ropes, hub::ModelArtifact& artifact,
                                     Backend& backend);

}  // namespace mantou::models
