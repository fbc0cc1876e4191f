#include "hub/gguf_names.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "hub/gguf_keys.h"
#include "hub/json_file.h"

namespace mantou::hub {
namespace {

using nlohmann::json;

constexpr NameRule kGlobalNames[] = {
    {"token_embd", "embed_tokens"},
    {"output_norm", "norm"},
    {"output", "lm_head"},
    {"per_layer_token_embd", "embed_tokens_per_layer"},
    {"per_layer_model_proj", "per_layer_model_projection"},
    {"per_layer_proj_norm", "per_layer_projection_norm"},
};

constexpr NameRule kCommonBlockNames[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"attn_rot_embd", "self_attn.rotary_emb.inv_freq"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

struct KeyRule {
  std::string_view gguf, hf;  // the former without "<architecture>."
  enum Kind { kInt, kDouble } kind;
  bool required;
  int64_t min = 1;  // of an integer
  bool zero_is_none = false;
};

constexpr KeyRule kKeys[] = {
    {"block_count", "num_hidden_layers", KeyRule::kInt, true},
    {"embedding_length", "hidden_size", KeyRule::kInt, true},
    {"feed_forward_length", "intermediate_size", KeyRule::kInt, true},
    {"attention.head_count", "num_attention_heads", KeyRule::kInt, true},
    {"attention.head_count_kv", "num_key_value_heads", KeyRule::kInt, false},
    {"attention.key_length", "head_dim", KeyRule::kInt, false},
    {"context_length", "max_position_embeddings", KeyRule::kInt, false},
    {"vocab_size", "vocab_size", KeyRule::kInt, false},
    {"attention.sliding_window", "sliding_window", KeyRule::kInt, false, 0},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KeyRule::kDouble, false},
    {"attention.layer_norm_epsilon", "layer_norm_eps", KeyRule::kDouble, false},
    {"attention.scale", "attention_scale", KeyRule::kDouble, false},
    {"embedding_scale", "embedding_scale", KeyRule::kDouble, false},
    {"residual_scale", "residual_scale", KeyRule::kDouble, false},
    {"logit_scale", "logit_scale", KeyRule::kDouble, false},
    {"expert_count", "num_experts", KeyRule::kInt, false, 1, true},
    {"expert_used_count", "num_experts_per_tok", KeyRule::kInt, false, 1, true},
    {"expert_feed_forward_length", "moe_intermediate_size", KeyRule::kInt, false},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", KeyRule::kInt, false},
    {"rope.freq_base", "rope_theta", KeyRule::kDouble, false},
    {"attn_logit_softcapping", "attn_logit_softcapping", KeyRule::kDouble, false},
    {"final_logit_softcapping", "final_logit_softcapping", KeyRule::kDouble, false},
};

constexpr NameRule kSamplingKeys[] = {
    {"general.sampling.temp", "temperature"},
    {"general.sampling.top_k", "top_k"},
    {"general.sampling.top_p", "top_p"},
    {"general.sampling.min_p", "min_p"},
    {"general.sampling.penalty_repeat", "repetition_penalty"},
};

const NameRule* find_rule(std::span<const NameRule> rules, std::string_view name) {
  const auto found =
      std::find_if(rules.begin(), rules.end(), [&](const NameRule& r) { return r.gguf == name; });
  return found == rules.end() ? nullptr : &*found;
}

// The value of a key that may also be an array of one number a layer, when those are all the same.
std::optional<int64_t> uniform_int(const GgufFile& file, const std::string& key) {
  const std::vector<int64_t> values = file.get_ints(key);
  if (values.empty()) return std::nullopt;
  if (std::any_of(values.begin(), values.end(), [&](int64_t v) { return v != values[0]; }))
    fail_param(ErrorCode::kUnsupported, key,
               "{}: {} differs between layers, which is not supported", file.origin(), key);
  return values[0];
}

void map_keys(const GgufFile& file, const GgufArchitecture& architecture, const std::string& prefix,
              json& config) {
  const std::span<const std::string_view> own = architecture.own_keys;
  for (const KeyRule& rule : kKeys) {
    if (std::find(own.begin(), own.end(), rule.gguf) != own.end()) continue;
    const std::string key = prefix + std::string(rule.gguf);
    if (rule.kind == KeyRule::kInt) {
      if (const auto value = uniform_int(file, key)) {
        if (*value == 0 && rule.zero_is_none) continue;
        check_range(file, key, *value, rule.min);
        config[std::string(rule.hf)] = *value;
      }
    } else if (const auto value = file.get_double(key)) {
      config[std::string(rule.hf)] = *value;
    }
    if (rule.required && !config.contains(rule.hf)) fail_missing(file, key);
  }
}

void require_epsilon(const GgufFile& file, const std::string& prefix, const json& config) {
  if (config.contains("rms_norm_eps") || config.contains("layer_norm_eps")) return;
  fail_missing(file, prefix + "attention.layer_norm_rms_epsilon");
}

// Which layers slide: one number (all but the last of so many), or a flag for each layer.
void fill_pattern(const GgufFile& file, const std::string& prefix, json& config) {
  const std::vector<int64_t> pattern = file.get_ints(prefix + "attention.sliding_window_pattern");
  if (pattern.size() == 1) config["sliding_window_pattern"] = pattern[0];
  if (pattern.size() <= 1) return;
  json& types = config["layer_types"] = json::array();
  for (const int64_t slides : pattern)
    types.push_back(slides != 0 ? "sliding_attention" : "full_attention");
}

void fill_attention(const GgufFile& file, const std::string& prefix, json& config) {
  if (!file.get_bool(prefix + "attention.causal").value_or(true))
    fail_param(ErrorCode::kUnsupported, prefix + "attention.causal",
               "{}: attention is not causal: an embedding model, not one that writes",
               file.origin());
  fill_pattern(file, prefix, config);
  const auto heads = config["num_attention_heads"].get<int64_t>();
  if (!config.contains("num_key_value_heads")) config["num_key_value_heads"] = heads;
  if (!config.contains("head_dim"))
    config["head_dim"] = config["hidden_size"].get<int64_t>() / heads;
  const auto head_dim = config["head_dim"].get<int64_t>();
  check_range(file, prefix + "attention.key_length", head_dim, 1);
  const auto value_dim = file.get_int(prefix + "attention.value_length");
  if (value_dim && *value_dim != head_dim)
    fail_param(ErrorCode::kUnsupported, prefix + "attention.value_length",
               "{}: heads of {} for keys and {} for values are not supported", file.origin(),
               head_dim, *value_dim);
}

// Llama 3 scaling has no key: its factors are the tensor "rope_freqs.weight".
void fill_rope(const GgufFile& file, const std::string& prefix, json& config) {
  if (!config.contains("rope_theta")) config["rope_theta"] = 10000.0;
  const auto head_dim = config["head_dim"].get<int64_t>();
  const auto rotated = file.get_int(prefix + "rope.dimension_count").value_or(head_dim);
  config["partial_rotary_factor"] = double(rotated) / double(head_dim);

  const std::string scaling = prefix + "rope.scaling.";
  const auto old_factor = file.get_double(prefix + "rope.scale_linear");
  const std::string type =
      file.get_string(scaling + "type").value_or(old_factor ? "linear" : "none");
  if (type == "none") return;
  json& out = config["rope_scaling"] = {{"rope_type", printable(type)}};
  const auto copy = [&](const char* key, const char* hf) {
    if (const auto value = file.get_double(scaling + key)) out[hf] = *value;
  };
  copy("factor", "factor");
  if (!out.contains("factor") && old_factor) out["factor"] = *old_factor;
  if (const auto factor = file.get_double(scaling + "attn_factor")) {
    // llama.cpp multiplies yarn's own factor by it; HF's key replaces it.
    const bool is_yarn = type == "yarn" && out.value("factor", 0.0) > 1;
    out["attention_factor"] =
        is_yarn ? *factor * (1 + 0.1 * std::log(out["factor"].get<double>())) : *factor;
  }
  copy("yarn_beta_fast", "beta_fast");
  copy("yarn_beta_slow", "beta_slow");
  if (const auto length = file.get_int(scaling + "original_context_length"))
    out["original_max_position_embeddings"] = *length;
}

}  // namespace

std::string hf_tensor_name(const GgufArchitecture& architecture, std::string_view gguf_name) {
  const size_t dot = gguf_name.rfind('.');
  if (dot == std::string_view::npos) return std::string(gguf_name);
  const std::string_view suffix = gguf_name.substr(dot);
  std::string_view stem = gguf_name.substr(0, dot);
  if (const NameRule* rule = find_rule(kGlobalNames, stem))
    return fmt::format("{}{}", rule->hf, suffix);
  if (!stem.starts_with("blk.")) return std::string(gguf_name);
  stem.remove_prefix(4);
  const size_t number_end = stem.find('.');
  if (number_end == std::string_view::npos) return std::string(gguf_name);
  const std::string_view layer = stem.substr(0, number_end);
  const std::string_view part = stem.substr(number_end + 1);
  const std::string_view whole = gguf_name.substr(gguf_name.size() - part.size() - suffix.size());
  if (const NameRule* rule = find_rule(architecture.block_names, whole))
    return fmt::format("layers.{}.{}", layer, rule->hf);
  const NameRule* rule = find_rule(architecture.block_names, part);
  if (rule == nullptr) rule = find_rule(kCommonBlockNames, part);
  if (rule == nullptr) return std::string(gguf_name);
  return fmt::format("layers.{}.{}{}", layer, rule->hf, suffix);
}

json gguf_config(const GgufFile& file, const GgufArchitecture& architecture) {
  const std::string prefix = std::string(architecture.name) + ".";
  json config = {{"model_type", architecture.model_type}, {"hidden_act", architecture.activation}};
  map_keys(file, architecture, prefix, config);
  require_epsilon(file, prefix, config);
  fill_attention(file, prefix, config);
  fill_rope(file, prefix, config);
  config["tie_word_embeddings"] = file.find_tensor("output.weight") == nullptr;
  config["attention_bias"] = file.find_tensor("blk.0.attn_q.bias") != nullptr;
  config["mlp_bias"] = file.find_tensor("blk.0.ffn_down.bias") != nullptr;
  // The table decides: vocab_size is absent from many files and sometimes unpadded.
  if (const RawTensor* table = file.find_tensor("token_embd.weight"); table != nullptr)
    config["vocab_size"] = table->shape.front();
  for (const char* token : {"bos", "eos"})
    if (const auto id = file.get_int(fmt::format("tokenizer.ggml.{}_token_id", token)))
      config[fmt::format("{}_token_id", token)] = *id;
  if (architecture.complete != nullptr) architecture.complete(file, config);
  return config;
}

json gguf_generation_config(const GgufFile& file) {
  json config = json::object();
  for (const NameRule& rule : kSamplingKeys) {
    const auto value = file.get_double(rule.gguf);
    if (!value) continue;
    if (rule.hf == "top_k")
      config[std::string(rule.hf)] = file.get_int(rule.gguf).value_or(0);
    else
      config[std::string(rule.hf)] = *value;
  }
  return config;
}

}  // namespace mantou::hub
