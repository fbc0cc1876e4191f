// The decoder that the families share: attention and MLP (or mixture of experts) blocks around a
// residual stream, described by a DecoderConfig. A family file says what differs, see
// docs/adding-a-model.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hub/config_reader.h"
#include "hub/model_artifact.h"
#include "models/model.h"
#include "models/rope.h"

namespace mantou::models {

// Names of a layer's tensors behind "layers.N."; an empty name means there is none.
struct LayerNames {
  std::string input_norm = "input_layernorm";
  std::string post_attention_norm;  // of attention's result, before it joins the residual
  std::string pre_mlp_norm = "post_attention_layernorm";
  std::string post_mlp_norm;
  std::string q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm";
  std::string attention = "self_attn.", o = "o_proj", qkv = "qkv_proj";  // qkv: the fused form
  std::string gate = "mlp.gate_proj", up = "mlp.up_proj", down = "mlp.down_proj";
};

// Norm of the heads of q and k.
enum class QkNorm {
  kNone,
  kHead,           // each head by itself, one scale of head_dim (or of heads · head_dim)
  kHeadAfterRope,  // the same behind the rope
  kWhole,          // all heads as one vector
};

struct MoeConfig {
  int experts = 0, top_k = 0, intermediate = 0;
  MoeSpec::Weights weights = MoeSpec::Weights::kOfAll;
  bool from_front = true;                   // see MoeSpec
  bool bias = false;                        // of router and experts
  std::string router = "mlp.gate";          // behind "layers.N."
  std::string stacked = "mlp.switch_mlp.";  // [experts, out, in] of all experts; or one by one:
  std::string single = "mlp.experts.{}.";
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";  // of single experts
  int shared_intermediate = 0;                                         // 0: no shared expert
  std::vector<bool> sparse;                                            // per layer
};

struct DecoderConfig {
  int hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0, vocab = 0;
  int64_t max_positions = 0;
  bool tied = false;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-6f;
  bool norm_plus_one = false;  // weights store w of (1 + w)
  bool norm_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  Activation activation = Activation::kSilu;
  bool gated = true;           // false: the MLP has no gate
  bool parallel = false;       // attention and MLP both read the input norm's result
  bool residual_last = false;  // parallel only: their results are added first, the residual then
  bool sinks = false;          // self_attn.sinks
  float embed_scale = 1, residual_scale = 1;
  float head_input_divisor = 1, logits_scale = 1, logits_divisor = 1;  // see Head
  float attention_scale = 0;                                           // 0: head_dim^-1/2
  float attention_softcap = 0, final_softcap = 0;
  AttentionSpec::Widen widen = AttentionSpec::Widen::kNothing;
  bool clip_f16 = false;          // see Join
  bool interleaved_rope = false;  // dimensions 2i and 2i + 1 are a pair
  bool grouped_qkv = false;  // the fused form holds, per key head, its queries, the key, the value
  std::optional<MoeConfig> moe;
  LayerNames names;
  std::string embed = "embed_tokens", lm_head = "lm_head";

  // Per layer; empty: every layer is full attention with the first rope.
  std::vector<int64_t> windows;  // 0: full attention
  bool mlx_lm_slides = true;     // see ModelInfo
  std::vector<int> rope_of;      // index into the ropes given to build_decoder; −1: no rope
};

// Reads and checks what all families have in common.
DecoderConfig read_decoder_config(const hub::ConfigReader& config);

// sliding_window; 0: none.
int64_t read_window(const hub::ConfigReader& config, int64_t fallback = 0);

// Which layers have a sliding window: layer_types where the checkpoint has it, else all but the
// last of every sliding_window_pattern (`fallback` when absent).
std::vector<bool> sliding_layers(const hub::ConfigReader& config, int layers, int64_t fallback);

// sliding_window, where the configuration has one that is not 0, for every layer: the families of
// which mlx-lm ignores it.
void slide_everywhere(DecoderConfig& decoder, const hub::ConfigReader& config);

// Windows for the sliding layers, full attention elsewhere.
void set_windows(DecoderConfig& decoder, const std::vector<bool>& sliding, int64_t window);
// Their ropes: indices into those given to build_decoder, −1 for none.
void set_ropes(DecoderConfig& decoder, const std::vector<bool>& sliding, int sliding_rope,
               int full_rope);

// Gemma 2 and 3: norms before and behind attention and MLP, of the (1 + w) kind.
void set_gemma_norms(DecoderConfig& decoder);
// OLMo 2 and its kin: norms behind attention and MLP alone.
void set_post_norms(DecoderConfig& decoder);

// sliding_window is present but off (use_sliding_window: false) in the published Qwen checkpoints.
void refuse_window(const hub::ConfigReader& config);

// What the mixtures have in common: experts, how many a token takes, their width, and which layers
// have them (decoder_sparse_step, mlp_only_layers).
MoeConfig read_moe_config(const hub::ConfigReader& config, const DecoderConfig& decoder);

// A decoder of `config.layers` layers over `ropes`.
std::unique_ptr<Model> build_decoder(const DecoderConfig& config, std::vector<Rope> ropes,
                                     hub::ModelArtifact& artifact, Backend& backend);

}  // namespace mantou::models
