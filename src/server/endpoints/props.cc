// GET /props: what a client of llama-server asks before its first request.
#include "base/json.h"
#include "server/endpoints/endpoints.h"
#include "server/endpoints/llama_format.h"

namespace mantou::server {
namespace {

// llama-server's word for a new seed each request.
constexpr uint64_t kRandomSeed = UINT32_MAX;

Json message(const char* role, const char* content) {
  return {{"role", role}, {"content", content}};
}

Json call(const char* name) {
  return {{"id", "call00000"},
          {"type", "function"},
          {"function", {{"name", name}, {"arguments", "{\"key\": \"value\"}"}}}};
}

// Whether the template writes each of `words` of such messages; a template that refuses them does
// not know them.
bool writes(const text::ChatTemplate& chat_template, const Json& messages,
            const text::ChatOptions& options, std::initializer_list<std::string_view> words) try {
  const std::string text = chat_template.render(messages, options).text;
  for (const std::string_view word : words)
    if (text.find(word) == std::string::npos) return false;
  return true;
} catch (const Error&) {
  return false;
}

// Found out by rendering.
Json caps_json(const text::ChatTemplate& chat_template) {
  const Json user = message("user", "QUESTION");
  const auto with_calls = [&](Json calls) {
    Json said = message("assistant", "");
    said["tool_calls"] = std::move(calls);
    return Json::array({user, std::move(said)});
  };
  text::ChatOptions tools;
  tools.tools =
      Json::array({{{"type", "function"},
                    {"function",
                     {{"name", "TOOL_A"},
                      {"description", "A tool."},
                      {"parameters", {{"type", "object"}, {"properties", Json::object()}}}}}}});
  Json thought = message("assistant", "ANSWER");
  thought["reasoning_content"] = "THOUGHT";
  text::ChatOptions effort;
  effort.extra = {{"reasoning_effort", "EFFORT"}};
  const Json both = with_calls(Json::array({call("TOOL_A"), call("TOOL_B")}));
  const auto can = [&](const Json& messages, const text::ChatOptions& options,
                       std::initializer_list<std::string_view> words) {
    return writes(chat_template, messages, options, words);
  };
  return {
      {"supports_string_content", can(Json::array({user}), {}, {"QUESTION"})},
      {"supports_system_role", can(Json::array({message("system", "RULE"), user}), {}, {"RULE"})},
      {"supports_tools", can(Json::array({user}), tools, {"TOOL_A"})},
      {"supports_tool_calls", can(with_calls(Json::array({call("TOOL_A")})), {}, {"TOOL_A"})},
      {"supports_parallel_tool_calls", can(both, {}, {"TOOL_A", "TOOL_B"})},
      {"supports_preserve_reasoning", can(Json::array({user, thought, user}), {}, {"THOUGHT"})},
      {"supports_reasoning_effort", can(Json::array({user}), effort, {"EFFORT"})}};
}

std::string_view token_text(const text::Tokenizer& tokenizer, TokenId id) {
  return id < 0 ? std::string_view() : tokenizer.bytes_of(id);
}

}  // namespace

void props(const Services& services, const HttpRequest&,
           const std::shared_ptr<Responder>& responder) {
  const Capabilities& can = services.engine.capabilities();
  SamplingParams sampling = services.defaults.sampling;
  sampling.seed = services.defaults.seed.value_or(kRandomSeed);
  const std::vector<TokenId>& ends = services.tokenizer->end_ids();
  const Json json = {
      {"default_generation_settings",
       {{"params", llama_settings(sampling, services.defaults.limits)}, {"n_ctx", can.context}}},
      {"total_slots", can.max_rows},
      {"model_alias", services.model_id},
      {"model_path", services.model_path},
      {"modalities", {{"vision", false}, {"video", false}, {"audio", false}}},
      {"endpoint_slots", true},
      {"endpoint_props", false},
      {"endpoint_metrics", true},
      {"chat_template", services.chat_template->source()},
      {"chat_template_caps", caps_json(*services.chat_template)},
      {"bos_token", token_text(*services.tokenizer, services.tokenizer->bos())},
      {"eos_token", token_text(*services.tokenizer, ends.empty() ? -1 : ends.front())},
      {"build_info", services.build_info},
      {"is_sleeping", false}};
  responder->send({200, to_text(json)});
}

}  // namespace mantou::server
