#include "server/refused_fields.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace mantou::server {
namespace {

bool is_one(const Json& value) { return value.is_number() && value.get<double>() == 1; }
bool is_negative(const Json& value) { return value.is_number() && value.get<double>() < 0; }
bool is_not_positive(const Json& value) { return value.is_number() && value.get<double>() <= 0; }
bool is_only_text(const Json& value) {
  return is_off(value) ||
         (value.is_array() &&
          std::all_of(value.begin(), value.end(), [](auto& each) { return each == "text"; }));
}
// Of fields that hold any text, also "none".
bool is_nothing(const Json& value) {
  return value == false || (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         (value.is_structured() && value.empty());
}
// Of fields that ask for something even when they are empty.
bool is_absent(const Json& value) { return value.is_null() || value == false; }
bool is_auto(const Json& value) { return is_off(value) || value == "auto"; }
bool is_unscaled(const Json& value) {
  return is_off(value) || (value.is_array() && std::ranges::all_of(value, [](const Json& each) {
                             return each.is_object() && each.value("scale", Json(1)) == 0;
                           }));
}
// The ways of llama-server to write reasoning that keep it out of the content.
bool is_apart(const Json& value) { return value == "auto" || value == "deepseek"; }

constexpr std::string_view kAdapters = "adapters are not available";
constexpr std::string_view kOurSamplers = "only the samplers of docs/sampling.md exist";
constexpr std::string_view kAlways = "a grammar holds from the start";
constexpr std::string_view kReasons = "reasoning is not limited";
constexpr std::string_view kSpecial = "special tokens are no part of the text";

constexpr RefusedField kEverywhere[] = {
    {"adapter", kAdapters},
    {"adapters", kAdapters},
    {"lora", kAdapters, is_unscaled},
    {"allowed_token_ids", "use logit_bias"},
    {"bad_words", "use logit_bias"},
    {"logits_processors", "use logit_bias"},
    {"include_stop_str_in_output", "stop texts are never part of the answer"},
    {"skip_special_tokens", kSpecial, is_true},
    {"preserved_tokens", kSpecial},
    {"prompt_logprobs", "ask /v1/completions for echo and logprobs"},
    {"truncate_prompt_tokens", "prompts are not cut; send a shorter one", is_negative},
    {"hlg", kOurSamplers},
    {"mirostat", kOurSamplers},
    {"typical_p", kOurSamplers, is_one},
    {"dry_multiplier", kOurSamplers},
    {"dynatemp_range", kOurSamplers},
    {"top_n_sigma", kOurSamplers, is_not_positive},
    {"adaptive_target", kOurSamplers, is_negative},
    {"repetition_detection", "use max_tokens or repetition_penalty"},
    {"use_beam_search", "answers are sampled, beams are not searched"},
    {"n_indent", "indents do not end an answer; use stop", is_not_positive},
    {"t_max_predict_ms", "the time is not limited; use n_predict", is_not_positive},
    {"reasoning_budget_tokens", kReasons, is_negative},
    {"thinking_token_budget", kReasons, is_negative},
    {"structural_tag", "use a grammar", is_nothing},
    {"guided_whitespace_pattern", "use a grammar", is_nothing},
    {"grammar_lazy", kAlways},
    {"grammar_triggers", kAlways},
};

constexpr RefusedField kInChat[] = {
    {"echo", "send the prompt back yourself"},
    {"functions", "use tools"},
    {"function_call", "use tools", is_auto},
    {"audio", "only text is available"},
    {"modalities", "only text is available", is_only_text},
    {"web_search_options", "the model cannot search", is_absent},
    {"chat_template", "the model's own is used; write the prompt yourself for /v1/completions",
     is_nothing},
    {"documents", "give the template what it wants by chat_template_kwargs", is_nothing},
    {"add_special_tokens", "the chat template writes them"},
    {"reasoning_format", "reasoning is apart, in reasoning_content", is_apart},
    {"parse_tool_calls", "start the server with --tool-call-parser none", is_true},
};

constexpr RefusedField kInCompletion[] = {
    {"suffix", "only continuing the prompt is available", is_nothing},
    {"prompt_embeds", "a prompt is text or token ids"},
    {"add_special_tokens", "send token ids", is_true},
};

constexpr RefusedField kInLlamaCompletion[] = {
    {"post_sampling_probs", "probabilities are those before the filters"},
};

}  // namespace

bool is_off(const Json& value) {
  if (value.is_string())
    return value.get_ref<const std::string&>().empty() || value == "none" || value == "text";
  if (value.is_object() && value.size() == 1 && value.contains("type"))
    return is_off(value["type"]);
  if (value.is_object() && value.contains("enabled")) return value["enabled"] == false;
  return value.is_null() || value == false || value == 0 ||
         ((value.is_array() || value.is_object()) && value.empty());
}

bool is_true(const Json& value) { return value == true; }

void refuse(const Fields& fields, std::span<const RefusedField> table) {
  for (const RefusedField& each : table) {
    const Json* value = fields.find(each.name);
    if (value == nullptr || each.is_neutral(*value)) continue;
    const std::string path = fields.path_of(each.name);
    fail_param(ErrorCode::kUnsupported, path, "'{}' is not supported: {}", path, each.instead);
  }
}

void refuse_everywhere(const Fields& fields) { refuse(fields, kEverywhere); }
void refuse_in_chat(const Fields& fields) { refuse(fields, kInChat); }
void refuse_in_completion(const Fields& fields) { refuse(fields, kInCompletion); }
void refuse_in_llama_completion(const Fields& fields) { refuse(fields, kInLlamaCompletion); }

}  // namespace mantou::server
