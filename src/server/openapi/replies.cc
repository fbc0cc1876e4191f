#include <utility>

#include "server/openapi/openapi.h"
#include "server/openapi/schema.h"

namespace mantou::server {
namespace {

using namespace schema;

Json constant(const char* text) { return one_text({text}); }
Json count() { return integer(0); }

// An object of which some members are not always there.
Json with_optional(Json required, Json optional) {
  Json schema = members(std::move(required));
  for (auto& [name, property] : optional.items()) schema["properties"][name] = std::move(property);
  return schema;
}

Json openai_error() {
  return members({{"error", with_optional({{"message", text()},
                                           {"type", text()},
                                           {"param", or_null(text())},
                                           {"code", or_null(text())}},
                                          {{"n_prompt_tokens", count()}, {"n_ctx", count()}})}});
}

Json anthropic_error() {
  return members(
      {{"type", constant("error")},
       {"error",
        members({{"type", one_text({"invalid_request_error", "authentication_error",
                                    "permission_error", "not_found_error", "request_too_large",
                                    "rate_limit_error", "overloaded_error", "api_error"})},
                 {"message", text()}})},
       {"request_id", or_null(text())}});
}

Json llama_error() {
  return members(
      {{"error",
        with_optional({{"code", described(integer(400, 599), "the status")},
                       {"message", text()},
                       {"type", text()}},
                      {{"param", text()}, {"n_prompt_tokens", count()}, {"n_ctx", count()}})}});
}

Json usage() {
  return with_optional({{"prompt_tokens", count()},
                        {"completion_tokens", count()},
                        {"total_tokens", count()},
                        {"prompt_tokens_details", members({{"cached_tokens", count()}})}},
                       {{"bypassed", {{"type", "object"}, {"additionalProperties", text()}}}});
}

Json timings() {
  return members({{"cache_n", count()},
                  {"prompt_n", count()},
                  {"prompt_ms", number()},
                  {"prompt_per_token_ms", number()},
                  {"prompt_per_second", number()},
                  {"predicted_n", count()},
                  {"predicted_ms", number()},
                  {"predicted_per_token_ms", number()},
                  {"predicted_per_second", number()},
                  {"queue_ms", number()}});
}

// A token with its bytes, which may be part of a character, and those that could have stood there.
Json token() {
  const Json alone = {{"id", count()},
                      {"token", text()},
                      {"logprob", or_null(number())},
                      {"bytes", list(integer(0, 255))}};
  Json whole = alone;
  whole["top_logprobs"] = list(members(alone));
  return members(std::move(whole));
}

// What both of OpenAI's objects have.
Json openai_reply(const char* object, Json choice) {
  return members({{"id", text()},
                  {"object", constant(object)},
                  {"created", integer()},
                  {"model", text()},
                  {"system_fingerprint", text()},
                  {"choices", filled_list(std::move(choice))},
                  {"usage", ref("Usage")},
                  {"timings", ref("Timings")}});
}

Json chat_completion() {
  const Json call = members({{"id", text()},
                             {"type", constant("function")},
                             {"function", members({{"name", text()}, {"arguments", text()}})}});
  const Json message = with_optional({{"role", constant("assistant")},
                                      {"content", or_null(text())},
                                      {"refusal", {{"type", "null"}}}},
                                     {{"reasoning_content", text()}, {"tool_calls", list(call)}});
  const Json logprobs = members({{"content", list(ref("Token"))}, {"refusal", {{"type", "null"}}}});
  return openai_reply("chat.completion",
                      members({{"index", count()},
                               {"message", message},
                               {"logprobs", or_null(logprobs)},
                               {"finish_reason", one_text({"stop", "length", "tool_calls"})}}));
}

Json completion() {
  const Json values = list(or_null(number()));
  const Json top = {{"type", Json::array({"object", "null"})}, {"additionalProperties", number()}};
  const Json legacy = members({{"tokens", list(text())},
                               {"token_logprobs", values},
                               {"top_logprobs", or_null(list(top))},
                               {"text_offset", list(count())}});
  const Json as_in_chats = members({{"content", list(ref("Token"))}});
  return openai_reply("text_completion",
                      members({{"index", count()},
                               {"text", text()},
                               {"logprobs", or_null(any_of({legacy, as_in_chats}))},
                               {"finish_reason", one_text({"stop", "length"})}}));
}

Json message() {
  const Json block = any_of(
      {members({{"type", constant("text")}, {"text", text()}}),
       members({{"type", constant("thinking")}, {"thinking", text()}, {"signature", text()}}),
       members({{"type", constant("tool_use")},
                {"id", text()},
                {"name", text()},
                {"input", any_object()}})});
  return members({{"id", text()},
                  {"type", constant("message")},
                  {"role", constant("assistant")},
                  {"model", text()},
                  {"content", list(block)},
                  {"stop_reason", one_text({"end_turn", "tool_use", "stop_sequence", "max_tokens",
                                            "model_context_window_exceeded"})},
                  {"stop_sequence", or_null(text())},
                  {"usage", members({{"input_tokens", count()},
                                     {"cache_creation_input_tokens", count()},
                                     {"cache_read_input_tokens", count()},
                                     {"output_tokens", count()}})}});
}

// response_fields may leave out any member.
Json llama_completion() {
  const Json one = object({{"index", count()},
                           {"content", text()},
                           {"tokens", list(count())},
                           {"id_slot", integer()},
                           {"stop", boolean()},
                           {"model", text()},
                           {"tokens_predicted", count()},
                           {"tokens_evaluated", count()},
                           {"tokens_cached", count()},
                           {"generation_settings", any_object()},
                           {"prompt", text()},
                           {"has_new_line", boolean()},
                           {"truncated", boolean()},
                           {"stop_type", one_text({"eos", "limit", "word"})},
                           {"stopping_word", text()},
                           {"timings", ref("Timings")},
                           {"completion_probabilities", list(ref("Token"))}});
  return described(any_of({one, list(one)}), "an array of the answers when n_cmpl is more than 1");
}

Json model() {
  return members({{"id", text()},
                  {"object", constant("model")},
                  {"created", integer()},
                  {"owned_by", text()},
                  {"context_window", count()},
                  {"meta", members({{"n_vocab", count()},
                                    {"n_ctx", count()},
                                    {"n_ctx_train", count()},
                                    {"architecture", text()}})}});
}

Json props() {
  return members(
      {{"default_generation_settings", members({{"params", any_object()}, {"n_ctx", count()}})},
       {"total_slots", count()},
       {"model_alias", text()},
       {"model_path", text()},
       {"modalities", members({{"vision", boolean()}, {"video", boolean()}, {"audio", boolean()}})},
       {"endpoint_slots", boolean()},
       {"endpoint_props", boolean()},
       {"endpoint_metrics", boolean()},
       {"chat_template", text()},
       {"chat_template_caps", {{"type", "object"}, {"additionalProperties", boolean()}}},
       {"bos_token", text()},
       {"eos_token", text()},
       {"build_info", text()},
       {"is_sleeping", boolean()}});
}

Json slots() {
  return list(with_optional({{"id", count()},
                             {"n_ctx", count()},
                             {"speculative", boolean()},
                             {"is_processing", boolean()}},
                            {{"id_task", count()},
                             {"n_prompt_tokens", count()},
                             {"n_prompt_tokens_processed", integer()},
                             {"n_prompt_tokens_cache", count()},
                             {"params", any_object()},
                             {"next_token", list(members({{"has_next_token", boolean()},
                                                          {"n_remain", integer()},
                                                          {"n_decoded", count()}}))}}));
}

Json stats() {
  const Json times = members({{"count", count()},
                              {"mean", number()},
                              {"p50", number()},
                              {"p90", number()},
                              {"p99", number()}});
  return members({{"model", text()},
                  {"uptime_seconds", count()},
                  {"requests", any_object()},
                  {"tokens", any_object()},
                  {"steps", members({{"count", count()}, {"rows_mean", number()}})},
                  {"seconds", {{"type", "object"}, {"additionalProperties", times}}},
                  {"kv_memory", members({{"reserved_bytes", count()},
                                         {"budget_bytes", or_null(count())},
                                         {"used", number(0, 1)}})},
                  {"prefix_cache", {{"type", "object"}, {"additionalProperties", count()}}},
                  {"rows", list(any_object())}});
}

Json tokens() {
  const Json piece = members({{"id", count()}, {"piece", any_of({text(), list(integer(0, 255))})}});
  return members({{"tokens", list(any_of({count(), piece}))}});
}

}  // namespace

Json reply_schemas() {
  return {{"OpenAiError", openai_error()},
          {"AnthropicError", anthropic_error()},
          {"LlamaError", llama_error()},
          {"Usage", usage()},
          {"Timings", timings()},
          {"Token", token()},
          {"ChatCompletion", chat_completion()},
          {"Completion", completion()},
          {"Message", message()},
          {"TokenCount", members({{"input_tokens", count()}})},
          {"LlamaCompletion", llama_completion()},
          {"Tokens", tokens()},
          {"Content", members({{"content", text()}})},
          {"PromptText", members({{"prompt", text()}})},
          {"Model", model()},
          {"ModelList", members({{"object", constant("list")}, {"data", list(ref("Model"))}})},
          {"Props", props()},
          {"Slots", slots()},
          {"Stats", stats()},
          {"Health", members({{"status", constant("ok")}})},
          {"Document", any_object()}};
}

}  // namespace mantou::server
