// The architectures of GGUF files: their names for tensors, and what their metadata leaves unsaid.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "hub/gguf_gemma4.h"
#include "hub/gguf_names.h"
#include "hub/json_file.h"

namespace mantou::hub {
namespace {

using nlohmann::json;

constexpr NameRule kTwoNormNames[] = {
    {"ffn_norm", "post_attention_layernorm"},
};

constexpr NameRule kGemmaNames[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

constexpr NameRule kGemma4Names[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"layer_output_scale.weight", "layer_scalar"},
    {"inp_gate", "per_layer_input_gate"},
    {"proj", "per_layer_projection"},
    {"post_norm", "post_per_layer_input_norm"},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
    {"ffn_gate_inp", "router.proj"},
    {"ffn_gate_inp.scale", "router.scale"},
    {"ffn_down_exps.scale", "router.per_expert_scale"},
    {"ffn_gate_up_exps", "experts.gate_up_proj"},
    {"ffn_gate_exps", "experts.switch_glu.gate_proj"},
    {"ffn_up_exps", "experts.switch_glu.up_proj"},
    {"ffn_down_exps", "experts.down_proj"},
};

// Gemma's 27B models, told by their number of layers, scale queries by hidden_size / heads, the
// others by head_dim.
void set_query_scale(json& config, int layers_of_27b) {
  config["query_pre_attn_scalar"] =
      config["num_hidden_layers"] == layers_of_27b
          ? config["hidden_size"].get<int64_t>() / config["num_attention_heads"].get<int64_t>()
          : config["head_dim"].get<int64_t>();
}

// What GGUF leaves to the reader: every sixth layer is global, the local rope base is 10000, and
// the 27B model has 62 layers.
void complete_gemma3(const GgufFile& file, json& config) {
  set_query_scale(config, 62);
  config["rope_local_base_freq"] = file.get_double("gemma3.rope.freq_base_swa").value_or(10000.0);
}

constexpr NameRule kPostNormNames[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

constexpr NameRule kPhi3Names[] = {
    {"ffn_norm", "post_attention_layernorm"},
    {"attn_qkv", "self_attn.qkv_proj"},
    {"ffn_up", "mlp.gate_up_proj"},
};

constexpr NameRule kGlm4Names[] = {
    {"post_attention_norm", "post_self_attn_layernorm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_mlp_layernorm"},
    {"ffn_up", "mlp.gate_up_proj"},
};

constexpr NameRule kStarcoder2Names[] = {
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.c_fc"},
    {"ffn_down", "mlp.c_proj"},
};

constexpr NameRule kStablelmNames[] = {
    {"ffn_norm", "post_attention_layernorm"},
    {"attn_q_norm", "self_attn.q_layernorm"},
    {"attn_k_norm", "self_attn.k_layernorm"},
};

constexpr NameRule kHunyuanNames[] = {
    {"ffn_norm", "post_attention_layernorm"},
    {"attn_q_norm", "self_attn.query_layernorm"},
    {"attn_k_norm", "self_attn.key_layernorm"},
};

constexpr NameRule kExpertNames[] = {
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.switch_mlp.gate_proj"},
    {"ffn_up_exps", "mlp.switch_mlp.up_proj"},
    {"ffn_down_exps", "mlp.switch_mlp.down_proj"},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
};

constexpr NameRule kLlamaNames[] = {
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"ffn_gate_exps", "block_sparse_moe.switch_mlp.gate_proj"},
    {"ffn_up_exps", "block_sparse_moe.switch_mlp.up_proj"},
    {"ffn_down_exps", "block_sparse_moe.switch_mlp.down_proj"},
};

constexpr NameRule kGptOssNames[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"attn_sinks", "self_attn.sinks"},
    {"ffn_gate_inp", "mlp.router"},
    {"ffn_gate_exps", "mlp.experts.gate_proj"},
    {"ffn_up_exps", "mlp.experts.up_proj"},
    {"ffn_down_exps", "mlp.experts.down_proj"},
};

// Files of the architecture "llama" with experts are Mixtral's.
void complete_llama(const GgufFile&, json& config) {
  if (config.contains("num_experts")) config["model_type"] = "mixtral";
}

// OLMo 3 is OLMo 2 with windows.
void complete_olmo2(const GgufFile&, json& config) {
  if (config.contains("sliding_window")) config["model_type"] = "olmo3";
}

void complete_gemma2(const GgufFile&, json& config) { set_query_scale(config, 46); }

// Long ropes are told by their tensors of factors.
void complete_phi3(const GgufFile& file, json& config) {
  if (file.find_tensor("rope_factors_long.weight") == nullptr) return;
  json& scaling = config["rope_scaling"];
  if (!scaling.is_object()) scaling = json::object();
  scaling["rope_type"] = "longrope";
  if (const auto length = file.get_int("phi3.rope.scaling.original_context_length"))
    scaling["original_max_position_embeddings"] = *length;
  if (const auto factor = file.get_double("phi3.rope.scaling.attn_factor"))
    scaling["attention_factor"] = *factor;
}

void copy_key(json& config, const char* from, const char* to) {
  if (config.contains(from)) config[to] = config[from];
}

void complete_granite(const GgufFile&, json& config) {
  copy_key(config, "attention_scale", "attention_multiplier");
  copy_key(config, "embedding_scale", "embedding_multiplier");
  copy_key(config, "residual_scale", "residual_multiplier");
  copy_key(config, "logit_scale", "logits_scaling");
}

// Files store the products of the configuration's multipliers; older ones have none of them and
// mean those of the 2B model.
void complete_minicpm(const GgufFile&, json& config) {
  const double layers = config["num_hidden_layers"].get<double>();
  const double hidden = config["hidden_size"].get<double>();
  config["scale_emb"] = config.value("embedding_scale", 12.0);
  config["scale_depth"] = config.contains("residual_scale")
                              ? config["residual_scale"].get<double>() * std::sqrt(layers)
                              : 1.4;
  config["dim_model_base"] =
      config.contains("logit_scale") ? hidden / config["logit_scale"].get<double>() : 256.0;
}

void complete_starcoder2(const GgufFile&, json& config) {
  copy_key(config, "layer_norm_eps", "norm_epsilon");
}

void complete_stablelm(const GgufFile& file, json& config) {
  config["use_qkv_bias"] = config["attention_bias"];
  config["use_parallel_residual"] = file.find_tensor("blk.0.ffn_norm.weight") == nullptr;
  config["qk_layernorm"] = file.find_tensor("blk.0.attn_q_norm.weight") != nullptr;
}

void complete_internlm2(const GgufFile&, json& config) {
  config["bias"] = config["attention_bias"];
}

// Biases of attention and of its output are separate switches.
void complete_seed_oss(const GgufFile& file, json& config) {
  config["attention_out_bias"] = file.find_tensor("blk.0.attn_output.bias") != nullptr;
}

void complete_ernie(const GgufFile&, json& config) {
  config["use_bias"] = config["attention_bias"];
}

// The ramp of gpt-oss's yarn is not rounded to whole dimensions.
void complete_gpt_oss(const GgufFile&, json& config) {
  if (config.contains("rope_scaling")) config["rope_scaling"]["truncate"] = false;
}

constexpr GgufArchitecture kArchitectures[] = {
    {"llama",
     "llama",
     "silu",
     kLlamaNames,
     true,
     false,
     complete_llama,
     {"mistral", "ministral", "mixtral"}},
    {"qwen2", "qwen2", "silu", kTwoNormNames, false, false, nullptr},
    {"qwen2vl", "qwen2_vl", "silu", kTwoNormNames, false, false, nullptr, {"qwen2_5_vl"}},
    {"qwen3", "qwen3", "silu", kTwoNormNames, false, false, nullptr},
    {"gemma", "gemma", "gelu_pytorch_tanh", kTwoNormNames, false, true, nullptr},
    {"gemma2", "gemma2", "gelu_pytorch_tanh", kGemmaNames, false, true, complete_gemma2},
    {"gemma3",
     "gemma3_text",
     "gelu_pytorch_tanh",
     kGemmaNames,
     false,
     true,
     complete_gemma3,
     {"gemma3"}},
    {"gemma4",
     "gemma4_text",
     "gelu_pytorch_tanh",
     kGemma4Names,
     false,
     false,
     complete_gemma4,
     {"gemma4"},
     kGemma4LayerKeys},
    {"phi3", "phi3", "silu", kPhi3Names, false, false, complete_phi3},
    {"olmo2", "olmo2", "silu", kPostNormNames, false, false, complete_olmo2, {"olmo3"}},
    {"exaone4", "exaone4", "silu", kPostNormNames, false, false, nullptr},
    {"smollm3", "smollm3", "silu", kTwoNormNames, true, false, nullptr},
    {"granite", "granite", "silu", kTwoNormNames, true, false, complete_granite},
    {"starcoder2", "starcoder2", "gelu_pytorch_tanh", kStarcoder2Names, false, false,
     complete_starcoder2},
    {"glm4", "glm4", "silu", kGlm4Names, false, false, nullptr},
    {"cohere2", "cohere2", "silu", {}, false, false, nullptr},
    {"stablelm", "stablelm", "silu", kStablelmNames, false, false, complete_stablelm},
    {"minicpm", "minicpm", "silu", kTwoNormNames, true, false, complete_minicpm},
    {"seed_oss", "seed_oss", "silu", kPostNormNames, false, false, complete_seed_oss},
    {"ernie4_5", "ernie4_5", "silu", kTwoNormNames, false, false, complete_ernie},
    {"hunyuan-dense", "hunyuan_v1_dense", "silu", kHunyuanNames, false, false, nullptr},
    {"internlm2", "internlm2", "silu", kTwoNormNames, true, false, complete_internlm2},
    {"qwen2moe", "qwen2_moe", "silu", kExpertNames, false, false, nullptr},
    {"qwen3moe", "qwen3_moe", "silu", kExpertNames, false, false, nullptr},
    {"olmoe", "olmoe", "silu", kExpertNames, false, false, nullptr},
    {"gpt-oss", "gpt_oss", "silu", kGptOssNames, false, false, complete_gpt_oss},
};

}  // namespace

std::span<const GgufArchitecture> gguf_architectures() { return kArchitectures; }

const GgufArchitecture& gguf_architecture(const GgufFile& file) {
  const auto name = file.get_string("general.architecture");
  if (!name)
    fail_param(ErrorCode::kCorruptData, "general.architecture",
               "{}: metadata key \"general.architecture\" is missing", file.origin());
  if (file.get_string("general.type").value_or("model") == "adapter")
    fail_param(ErrorCode::kUnsupported, "general.type",
               "{}: this is a LoRA adapter, not a model; adapters are not supported",
               file.origin());
  if (*name == "clip")
    fail_param(ErrorCode::kUnsupported, "general.architecture",
               "{}: this is a vision tower, not a language model; images are not supported",
               file.origin());
  const auto found = std::find_if(
      std::begin(kArchitectures), std::end(kArchitectures),
      [&](const GgufArchitecture& architecture) { return architecture.name == *name; });
  if (found != std::end(kArchitectures)) return *found;
  std::string known;
  for (const GgufArchitecture& architecture : kArchitectures)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", architecture.name);
  fail_param(ErrorCode::kUnsupported, "general.architecture",
             "{}: the architecture \"{}\" is not supported; supported in GGUF files: {}",
             file.origin(), printable(*name), known);
}

}  // namespace mantou::hub
