#include <cstdint>
#include <limits>
#include <utility>

#include "engine/request.h"
#include "server/endpoints/llama_fields.h"
#include "server/generation_fields.h"
#include "server/openapi/openapi.h"
#include "server/openapi/schema.h"

namespace mantou::server {
namespace {

using namespace schema;

Json sampling() {
  return fields(
      {{"temperature", described(number(0, kMaxTemperature), "0: the most probable token")},
       {"top_p", number(0, 1)},
       {"top_k", described(integer(-1), "0 and -1: off")},
       {"min_p", number(0, 1)},
       {"min_tokens_to_keep", integer(1)},
       {"xtc_probability", number(0, 1)},
       {"repetition_penalty", number(0, kMaxRepetitionPenalty)},
       {"repeat_penalty", described(number(0, kMaxRepetitionPenalty), "repetition_penalty")},
       {"repetition_context_size", described(integer(0), "0: the whole history")},
       {"repeat_last_n",
        described(integer(-1), "repetition_context_size; -1: the whole history, 0: no penalty")},
       {"presence_penalty", number(-kMaxPenalty, kMaxPenalty)},
       {"presence_context_size", integer(0)},
       {"frequency_penalty", number(-kMaxPenalty, kMaxPenalty)},
       {"frequency_context_size", integer(0)}});
}

Json stop_texts() { return any_of({filled_text(), list(filled_text(), kMaxStops)}); }

Json answer(const Json& token_id) {
  Json schema = fields(
      {{"min_tokens", integer(0)},
       {"ignore_eos", boolean()},
       {"stop_token_ids", list(token_id, kMaxStopTokens)},
       {"stream", described(boolean(), "the answer comes as text/event-stream")},
       {"stream_options", described(fields({{"include_usage", boolean()}}), "only with stream")},
       {"cache_prompt", described(boolean(), "false: the whole prompt is read anew")}});
  const Json no_options = object({{"stream_options", {{"type", "null"}}}});
  const Json a_stream = object({{"stream", {{"const", true}}}}, {"stream"});
  schema["anyOf"] = Json::array({no_options, a_stream});
  return schema;
}

// Where an answer must have tokens.
Json token_limit() {
  return described(any_of({integer(1), integer(-1, -1)}), "-1: as many as the context holds");
}

Json json_schema() { return {{"type", Json::array({"object", "boolean"})}}; }

Json schema_or_text() {
  return described(any_of({json_schema(), text()}), "a JSON schema, or the text of one");
}

Json or_off(Json property) {
  return any_of({std::move(property), {{"enum", Json::array({"", false})}}});
}

Json response_format() {
  return any_of(
      {object({{"type", one_text({"text"})}}, {"type"}),
       object({{"type", one_text({"json_object"})}, {"schema", or_null(json_schema())}}, {"type"}),
       object({{"type", one_text({"json_schema"})},
               {"json_schema", object({{"schema", json_schema()}}, {"schema"})}},
              {"type", "json_schema"}),
       {{"type", "object"}, {"maxProperties", 0}}});
}

Json structured() {
  const Json grammar = or_off(described(filled_text(), "GBNF, or Lark when it holds no ::="));
  const Json choice = or_off(filled_list(text()));
  const Json regex = or_off(filled_text());
  Json outputs = fields({{"json", or_off(schema_or_text())},
                         {"regex", regex},
                         {"choice", choice},
                         {"grammar", grammar},
                         {"json_object", or_off(boolean())}});
  const Json there = {{"type", Json::array({"string", "boolean", "object", "array"})}};
  for (const char* way : {"json", "regex", "choice", "grammar", "json_object"})
    outputs["anyOf"].push_back(object({{way, there}}, {way}));
  Json schema = fields({{"response_format", or_off(response_format())},
                        {"json_schema", or_off(schema_or_text())},
                        {"grammar", grammar},
                        {"guided_json", or_off(schema_or_text())},
                        {"guided_regex", regex},
                        {"guided_choice", choice},
                        {"guided_grammar", grammar},
                        {"structured_outputs", or_off(std::move(outputs))}});
  return described(std::move(schema), "What binds the answer; all that are given must agree.");
}

// What OpenAI's and Anthropic's routes spell alike and llama-server's differently.
Json common() {
  return fields({{"xtc_threshold", number(0, kMaxXtcThreshold)},
                 {"seed",
                  {{"type", "integer"},
                   {"minimum", kLowest},
                   {"maximum", std::numeric_limits<uint64_t>::max()}}},
                 {"stop", stop_texts()},
                 {"logit_bias",
                  {{"type", "object"},
                   {"propertyNames", {{"pattern", "^[0-9]{1,9}$"}}},
                   {"additionalProperties", number(-kMaxBias, kMaxBias)}}}});
}

Json message_part() {
  return any_of(
      {text(),
       object({{"type", one_text({"text", "input_text", "output_text"})}, {"text", text()}},
              {"type", "text"}),
       object({{"type", one_text({"refusal"})}, {"refusal", text()}}, {"type", "refusal"})});
}

Json chat_message() {
  const Json function =
      object({{"name", text()}, {"arguments", or_null(any_of({text(), any_object()}))}}, {"name"});
  Json schema = fields({{"role", described(filled_text(), "developer counts as system")},
                        {"content", any_of({text(), list(message_part())})},
                        {"reasoning_content", text()},
                        {"tool_calls", list(object({{"function", function}}, {"function"}))}},
                       {"role"});
  // Only an assistant's that calls or thinks may lack the content.
  const Json role = one_text({"assistant"}), array = {{"type", "array"}};
  const Json some = {{"type", Json::array({"string", "array"})}};
  schema["anyOf"] =
      Json::array({object({{"content", some}}, {"content"}),
                   object({{"role", role}, {"tool_calls", array}}, {"tool_calls"}),
                   object({{"role", role}, {"reasoning_content", text()}}, {"reasoning_content"})});
  return schema;
}

Json chat_tool() {
  Json schema = fields(
      {{"type", one_text({"function"})}, {"function", object({{"name", filled_text()}}, {"name"})}},
      {"function"});
  schema["examples"] = Json::array(
      {{{"type", "function"},
        {"function",
         {{"name", "weather"},
          {"parameters",
           {{"type", "object"}, {"properties", {{"place", {{"type", "string"}}}}}}}}}}});
  return described(std::move(schema), "no two have the same name");
}

Json named_function() {
  return object({{"function", object({{"name", text()}}, {"name"})}}, {"function"});
}

Json chat_tool_choice() {
  Json one = named_function();
  one["properties"]["type"] = or_null(one_text({"function"}));
  const Json allowed =
      fields({{"mode", one_text({"auto", "required"})}, {"tools", filled_list(named_function())}},
             {"tools"});
  const Json mode = one_text({"auto", "none", "required", "any"});
  Json in_object = object({{"type", mode}}, {"type"});
  in_object["maxProperties"] = 1;
  return any_of({mode, std::move(in_object), std::move(one),
                 object({{"type", one_text({"allowed_tools"})}, {"allowed_tools", allowed}},
                        {"type", "allowed_tools"})});
}

Json model() { return {{"description", "any: the model that is served answers"}}; }

Json chat_completion() {
  Json own = fields(
      {{"model", model()},
       {"messages", filled_list(ref("ChatMessage"))},
       {"max_completion_tokens", token_limit()},
       {"max_tokens", token_limit()},
       {"n_predict", token_limit()},
       {"n", integer(1, kMaxChoices)},
       {"logprobs", boolean()},
       {"top_logprobs", described(integer(-1, kMaxTopLogprobs), "more than 0 only with logprobs")},
       {"tools", list(ref("ChatTool"))},
       {"tool_choice", chat_tool_choice()},
       {"parallel_tool_calls", boolean()},
       {"reasoning_effort",
        one_text({"none", "minimal", "low", "medium", "high", "xhigh", "max", "auto", "default"})},
       {"chat_template_kwargs", any_object()},
       {"add_generation_prompt", boolean()},
       {"continue_final_message", boolean()}},
      {"messages"});
  return all_of({ref("Sampling"), ref("Answer"), ref("Common"), ref("Structured"), std::move(own)});
}

Json completion(const Json& token_id) {
  const Json ids = filled_list(token_id);
  const Json limit = described(integer(-1), "-1: as many as the context holds");
  Json own = fields({{"model", model()},
                     {"prompt", any_of({filled_text(), ids,
                                        filled_list(any_of({filled_text(), ids}), kMaxPrompts)})},
                     {"max_completion_tokens", limit},
                     {"max_tokens", limit},
                     {"n_predict", limit},
                     {"n", integer(1, kMaxChoices)},
                     {"best_of", described(integer(1), "the same as n")},
                     {"echo", boolean()},
                     {"logprobs", described(any_of({integer(0, kMaxTopLogprobs), boolean()}),
                                            "true: in the shape of chats, with top_logprobs")},
                     {"top_logprobs", integer(-1, kMaxTopLogprobs)}},
                    {"prompt"});
  return all_of({ref("Sampling"), ref("Answer"), ref("Common"), ref("Structured"), std::move(own)});
}

Json block(const char* type, Json properties, std::initializer_list<const char*> required) {
  Json schema = fields(std::move(properties), required);
  schema["properties"]["type"] = one_text({type});
  schema["required"].push_back("type");
  return schema;
}

Json text_block() { return block("text", {{"text", text()}}, {"text"}); }

Json passed_over() {
  const char* const kTypes =
      "^(redacted_thinking|server_tool_use|mcp_tool_use|tool_reference|.*_tool_result)$";
  return described(object({{"type", {{"type", "string"}, {"pattern", kTypes}}}}, {"type"}),
                   "what tools that run elsewhere left; passed over");
}

Json anthropic_texts() { return any_of({text(), list(any_of({text_block(), passed_over()}))}); }

Json anthropic_message() {
  const Json call = block("tool_use", {{"id", text()}, {"name", text()}, {"input", any_object()}},
                          {"id", "name", "input"});
  const Json result =
      block("tool_result",
            {{"tool_use_id", text()}, {"content", anthropic_texts()}, {"is_error", boolean()}},
            {"tool_use_id"});
  const Json thinking = block("thinking", {{"thinking", text()}}, {"thinking"});
  const auto turn = [](const char* role, Json blocks) {
    return object(
        {{"role", one_text({role})}, {"content", any_of({text(), list(std::move(blocks))})}},
        {"role", "content"});
  };
  return any_of({turn("user", any_of({text_block(), result, passed_over()})),
                 turn("assistant", any_of({text_block(), thinking, call, passed_over()})),
                 turn("system", any_of({text_block(), passed_over()}))});
}

Json anthropic_tool() {
  return any_of(
      {fields({{"type", one_text({"custom"})},
               {"name", filled_text()},
               {"description", text()},
               {"input_schema", any_object()}},
              {"name", "input_schema"}),
       described(object({{"type", {{"type", "string"}, {"not", {{"const", "custom"}}}}}}, {"type"}),
                 "a tool that runs elsewhere; passed over")});
}

Json anthropic_tool_choice() {
  const Json once = or_null(boolean());
  return any_of(
      {object({{"type", one_text({"auto", "none", "any"})}, {"disable_parallel_tool_use", once}},
              {"type"}),
       object({{"type", one_text({"tool"})}, {"name", text()}, {"disable_parallel_tool_use", once}},
              {"type", "name"})});
}

// Both of Anthropic's routes.
Json message_fields(Json max_tokens, std::initializer_list<const char*> required) {
  const Json format =
      object({{"type", one_text({"json_schema"})}, {"schema", any_object()}}, {"type", "schema"});
  Json own = fields(
      {{"model", model()},
       {"max_tokens", std::move(max_tokens)},
       {"messages", filled_list(ref("AnthropicMessage"))},
       {"system", anthropic_texts()},
       {"stop_sequences", stop_texts()},
       {"n", integer(1, 1)},
       {"tools", list(ref("AnthropicTool"))},
       {"tool_choice", anthropic_tool_choice()},
       {"thinking", fields({{"type", one_text({"enabled", "disabled", "adaptive"})},
                            {"budget_tokens", described(integer(1), "not enforced")},
                            {"display", text()}},
                           {"type"})},
       {"output_config", fields({{"effort", one_text({"low", "medium", "high", "xhigh", "max"})},
                                 {"format", format}})},
       {"output_format", format}},
      required);
  return all_of({ref("Sampling"), ref("Answer"), ref("Common"), ref("Structured"), std::move(own)});
}

Json tokens_or_texts(const Json& token_id) {
  return any_of({text(), list(any_of({text(), token_id}))});
}

Json llama_completion(const Json& token_id) {
  const Json bias =
      described(any_of({number(-kMaxLlamaBias, kMaxLlamaBias), {{"enum", Json::array({false})}}}),
                "false: never");
  const Json pair = {{"type", "array"},
                     {"prefixItems", Json::array({any_of({text(), token_id}), bias})},
                     {"minItems", 2},
                     {"maxItems", 2}};
  const Json sampler = one_text({"penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p",
                                 "min_p", "xtc", "temperature"});
  Json own = fields(
      {{"prompt", any_of({tokens_or_texts(token_id),
                          object({{"prompt_string", text()}}, {"prompt_string"})})},
       {"n_predict", described(integer(-2), "-1 and -2: as many as the context holds")},
       {"max_tokens", token_limit()},
       {"max_completion_tokens", token_limit()},
       {"n_cmpl", integer(1, kMaxChoices)},
       {"n", integer(1, kMaxChoices)},
       {"n_probs", integer(0, kMaxTopLogprobs)},
       {"min_keep", integer(0)},
       {"xtc_threshold", number(0, 1)},
       {"seed", described(integer(), "-1: a new one")},
       {"stop", any_of({text(), list(text(), kMaxStops)})},
       {"logit_bias", any_of({list(pair), {{"type", "object"}, {"additionalProperties", bias}}})},
       {"samplers",
        described(any_of({sampler, list(sampler)}), "those that are on, in this order")},
       {"response_fields", any_of({filled_text(), list(filled_text(), kMaxResponseFields)})},
       {"return_tokens", boolean()},
       {"return_progress", boolean()},
       {"timings_per_token", boolean()}},
      {"prompt"});
  return all_of({ref("Sampling"), ref("Answer"), ref("Structured"), std::move(own)});
}

}  // namespace

Json request_schemas(int vocab_size) {
  const Json token_id = integer(0, vocab_size - 1);
  return {{"Sampling", sampling()},
          {"Answer", answer(token_id)},
          {"Common", common()},
          {"Structured", structured()},
          {"ChatMessage", chat_message()},
          {"ChatTool", chat_tool()},
          {"ChatCompletionRequest", chat_completion()},
          {"CompletionRequest", completion(token_id)},
          {"AnthropicMessage", anthropic_message()},
          {"AnthropicTool", anthropic_tool()},
          {"MessagesRequest", message_fields(integer(1), {"messages", "max_tokens"})},
          {"CountTokensRequest", message_fields(integer(1), {"messages"})},
          {"LlamaCompletionRequest", llama_completion(token_id)},
          {"TokenizeRequest", fields({{"content", tokens_or_texts(token_id)},
                                      {"add_special", boolean()},
                                      {"parse_special", boolean()},
                                      {"with_pieces", boolean()}})},
          {"DetokenizeRequest", fields({{"tokens", list(token_id)}})}};
}

}  // namespace mantou::server
