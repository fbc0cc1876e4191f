// Request bodies to values: what is refused, and that the error names the field and the limit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "server/generation_fields.h"
#include "server/json_fields.h"

namespace mantou::server {
namespace {

using testing::HasSubstr;

constexpr int kVocab = 1000;

struct Refusal {
  std::string param, message;
};

template <class Function>
Refusal refusal_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::kInvalidArgument ||
                error.code() == ErrorCode::kUnsupported);
    return {error.param(), error.message()};
  }
  return {"accepted", "accepted"};
}

Refusal chat(const std::string& fields) {
  return refusal_of([&] {
    parse_chat_request(R"({"messages": [{"role": "user", "content": "x"}])" +
                           (fields.empty() ? "}" : ", " + fields + "}"),
                       {}, kVocab);
  });
}

Refusal completion(const std::string& fields) {
  return refusal_of(
      [&] { parse_completion_request(R"({"prompt": "x", )" + fields + "}", {}, kVocab); });
}

struct BadField {
  const char* fields;
  const char* param;
  const char* message;  // a part of it
};

// Of both endpoints.
constexpr BadField kBadFields[] = {
    {R"("temperature": "hot")", "temperature",
     R"('temperature' must be a number from 0 to 5, not "hot")"},
    {R"("temperature": -0.1)", "temperature", "from 0 to 5, not -0.1"},
    {R"("temperature": 5.5)", "temperature", "from 0 to 5"},
    {R"("temperature": true)", "temperature", "not true"},
    {R"("temperature": [1])", "temperature", "not an array of 1"},
    {R"("top_p": 1.01)", "top_p", "from 0 to 1"},
    {R"("top_k": 1.5)", "top_k", "an integer of at least -1, not 1.5"},
    {R"("top_k": -2)", "top_k", "of at least -1"},
    {R"("min_p": 2)", "min_p", "from 0 to 1"},
    {R"("min_tokens_to_keep": 0)", "min_tokens_to_keep", "of at least 1"},
    {R"("xtc_probability": -1)", "xtc_probability", "from 0 to 1"},
    {R"("xtc_threshold": 0.6)", "xtc_threshold", "from 0 to 0.5"},
    {R"("repetition_penalty": -1)", "repetition_penalty", "from 0 to 10"},
    {R"("repetition_context_size": -1)", "repetition_context_size", "of at least 0"},
    {R"("presence_penalty": 2.1)", "presence_penalty", "from -2 to 2"},
    {R"("frequency_penalty": -2.1)", "frequency_penalty", "from -2 to 2"},
    {R"("seed": 1.5)", "seed", "an integer"},
    {R"("seed": "1")", "seed", "an integer"},
    {R"("max_tokens": "10")", "max_tokens", R"(not "10")"},
    {R"("max_completion_tokens": -3)", "max_completion_tokens", "of at least"},
    {R"("max_tokens": -2)", "max_tokens", "of at least"},
    {R"("repeat_penalty": 11)", "repeat_penalty", "from 0 to 10"},
    {R"("repeat_last_n": -2)", "repeat_last_n", "of at least -1"},
    {R"("repeat_penalty": 11, "repetition_penalty": 1)", "repeat_penalty", "from 0 to 10"},
    {R"("repeat_last_n": -2, "repetition_context_size": 1)", "repeat_last_n", "of at least -1"},
    {R"("n_predict": -9, "max_completion_tokens": 5)", "n_predict", "of at least"},
    {R"("min_tokens": -1)", "min_tokens", "of at least 0"},
    {R"("min_tokens": 5, "max_tokens": 4)", "min_tokens", "(5) must not be more than"},
    {R"("ignore_eos": 1)", "ignore_eos", "true or false, not 1"},
    {R"("stop": 7)", "stop", "a string"},
    {R"("stop": "")", "stop", "not empty"},
    {R"("stop": ["a", 7])", "stop[1]", "'stop[1]' must be a string"},
    {R"("stop": ["a", ""])", "stop[1]", "not empty"},
    {R"("stop": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])",
     "stop", "at most 16 strings, not an array of 17"},
    {R"("stop_token_ids": 5)", "stop_token_ids", "an array"},
    {R"("stop_token_ids": [1, 1000])", "stop_token_ids[1]", "from 0 to 999, not 1000"},
    {R"("logit_bias": [1])", "logit_bias", "an object of token id to number"},
    {R"("logit_bias": {"x": 1})", "logit_bias", R"(token ids from 0 to 999, not "x")"},
    {R"("logit_bias": {"1000": 1})", "logit_bias", "from 0 to 999"},
    {R"("logit_bias": {"-1": 1})", "logit_bias", "from 0 to 999"},
    {R"("logit_bias": {"5 ": 1})", "logit_bias", "from 0 to 999"},
    {R"("logit_bias": {"5": 101})", "logit_bias.5", "from -100 to 100, not 101"},
    {R"("logit_bias": {"5": "1"})", "logit_bias.5", R"(not "1")"},
    {R"("stream": "yes")", "stream", "true or false"},
    {R"("stream": true, "stream_options": 1)", "stream_options", "an object"},
    {R"("stream": true, "stream_options": {"include_usage": 1})", "stream_options.include_usage",
     "true or false"},
    {R"("stream_options": {"include_usage": true})", "stream_options", "only allowed together"},
    {R"("n": 129)", "n", "from 1 to 128"},
    {R"("n": 0)", "n", "from 1 to 128"},
    {R"("cache_prompt": "no")", "cache_prompt", "true or false"},
    {R"("response_format": {"type": "xml"})", "response_format.type", "json_schema, not"},
    {R"("response_format": {"type": "json_schema", "json_schema": {}})",
     "response_format.json_schema.schema", "is required"},
    {R"("response_format": {"schema": {}})", "response_format.type", "is required"},
    {R"("guided_json": 7)", "guided_json", "a JSON schema"},
    {R"("guided_json": "{")", "guided_json", "a JSON schema"},
    {R"("guided_choice": [])", "guided_choice", "at least one text"},
    {R"("guided_regex": ["a"])", "guided_regex", "a text that is not empty"},
    {R"("structured_outputs": {"json": 1})", "structured_outputs.json", "a JSON schema"},
    {R"("guided_regex": "a", "guided_choice": ["b"])", "guided_choice", "different things"},
    {R"("adapter": "mine")", "adapter", "not supported"},
    {R"("adapters": "mine")", "adapters", "not supported"},
    {R"("include_stop_str_in_output": true)", "include_stop_str_in_output", "not supported"},
    {R"("mirostat": 2)", "mirostat", "not supported"},
    {R"("max_tokens": 18446744073709551615)", "max_tokens", "not 18446744073709551615"},
    {R"("n_predict": 9223372036854775808)", "n_predict", "not 9223372036854775808"},
    {R"("top_n_sigma": 18446744073709551615)", "top_n_sigma", "not supported"},
    {R"("typical_p": 0.9)", "typical_p", "not supported"},
    {R"("use_beam_search": true)", "use_beam_search", "not supported"},
    {R"("truncate_prompt_tokens": 5)", "truncate_prompt_tokens", "not supported"},
    {R"("skip_special_tokens": false)", "skip_special_tokens", "not supported"},
    {R"("logits_processors": ["f"])", "logits_processors", "use logit_bias"},
    {R"("thinking_token_budget": 0)", "thinking_token_budget", "not limited"},
    {R"("lora": [{"id": 0, "scale": 1}])", "lora", "not available"},
    {R"("t_max_predict_ms": 9)", "t_max_predict_ms", "use n_predict"},
    {R"("grammar_lazy": true)", "grammar_lazy", "from the start"},
    {R"("structural_tag": "{}")", "structural_tag", "use a grammar"},
    {R"("guided_json": {}, "guided_whitespace_pattern": " ")", "guided_whitespace_pattern",
     "use a grammar"},
    {R"("structured_outputs": {"jsn": {"type": "null"}})", "structured_outputs",
     "must hold one of grammar, json, regex"},
    {R"("structured_outputs": {"structural_tag": "{}"})", "structured_outputs.structural_tag",
     "'structured_outputs.structural_tag' is not supported"},
    {R"("structured_outputs": {"json": {}, "whitespace_pattern": " "})",
     "structured_outputs.whitespace_pattern", "not supported"},
    {R"("structured_outputs": {"json": {}, "disable_any_whitespace": true})",
     "structured_outputs.disable_any_whitespace", "not supported"},
    {R"("structured_outputs": {"json": {}, "disable_additional_properties": true})",
     "structured_outputs.disable_additional_properties", "say it in the schema"},
};

constexpr BadField kBadChatFields[] = {
    {R"("echo": true)", "echo", "not supported"},
    {R"("max_tokens": 0)", "max_tokens", "an integer of at least 1, not 0"},
    {R"("n_predict": 0)", "n_predict", "of at least 1"},
    {R"("logprobs": 1)", "logprobs", "true or false, not 1"},
    {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs", "from -1 to 20, not 21"},
    {R"("top_logprobs": 2)", "top_logprobs", "only allowed together"},
    {R"("functions": [{"name": "f"}])", "functions", "use tools"},
    {R"("tools": {"a": 1})", "tools", "an array of tools, not an object"},
    {R"("tools": [7])", "tools[0]", "an object, not 7"},
    {R"("tools": [{"type": "function"}])", "tools[0].function.name", "not empty, not null"},
    {R"("tools": [{"name": "f"}])", "tools[0].function.name", "not empty, not null"},
    {R"("tools": [{"function": 7}])", "tools[0].function", "an object, not 7"},
    {R"("tools": [{"function": {}}])", "tools[0].function.name", "not empty, not null"},
    {R"("tools": [{"function": {"name": ""}}])", "tools[0].function.name", R"(not "")"},
    {R"("tools": [{"function": {"name": 7}}])", "tools[0].function.name", "not 7"},
    {R"("tools": [{"function": {"name": "f"}}, {"function": {"name": "g"}},
                  {"function": {"name": "f"}}])",
     "tools[2].function.name", R"(an earlier tool is called "f")"},
    {R"("tools": [{"function": {"name": ""}}], "tool_choice": "none")", "tools[0].function.name",
     "not empty"},
    {R"("tools": [{"type": "custom", "custom": {"name": "f"}}])", "tools[0].type",
     R"(of type "custom")"},
    {R"("chat_template": "{{ messages }}")", "chat_template", "not supported"},
    {R"("documents": [{"text": "x"}])", "documents", "chat_template_kwargs"},
    {R"("web_search_options": {})", "web_search_options", "cannot search"},
    {R"("function_call": {"name": "f"})", "function_call", "use tools"},
    {R"("tool_choice": {"type": "any"})", "tool_choice", "no 'tools'"},
    {R"("modalities": ["text", "audio"])", "modalities", "only text"},
    {R"("add_special_tokens": true)", "add_special_tokens", "not supported"},
    {R"("reasoning_format": "none")", "reasoning_format", "reasoning_content"},
    {R"("parse_tool_calls": false)", "parse_tool_calls", "not supported"},
    {R"("tool_choice": "required")", "tool_choice", "no 'tools'"},
    {R"("tool_choice": {"type": "function", "function": {"name": "f"}})", "tool_choice",
     "no 'tools'"},
    {R"("tools": [{"function": {"name": "g"}}], "tool_choice": "some")", "tool_choice",
     R"(auto, none, required or an object that names tools, not "some")"},
    {R"("tools": [{"function": {"name": "g"}}], "tool_choice": {"type": "x"})", "tool_choice.type",
     "function or allowed_tools"},
    {R"("tools": [{"function": {"name": "g"}}], "tool_choice": {"function": {}})", "tool_choice",
     "must be {"},
    {R"("tools": [{"function": {"name": "g"}}], "tool_choice": {"function": {"name": "f"}})",
     "tool_choice.function.name", R"(names "f")"},
    {R"("tools": [{"function": {"name": "g"}}], "tool_choice": {"type": "allowed_tools"})",
     "tool_choice.allowed_tools", "required"},
    {R"("tools": [{"function": {"name": "g"}}], "tool_choice": {"type": "allowed_tools",
        "allowed_tools": {"mode": "some"}})",
     "tool_choice.allowed_tools.mode", "auto or required"},
    {R"("tools": [{"function": {"name": "g"}}], "tool_choice": {"type": "allowed_tools",
        "allowed_tools": {"tools": [{"function": {"name": "f"}}]}})",
     "tool_choice.allowed_tools.tools", R"(names "f")"},
    {R"("parallel_tool_calls": 1)", "parallel_tool_calls", "true or false"},
    {R"("reasoning_effort": "most")", "reasoning_effort", "none, minimal, low"},
    {R"("chat_template_kwargs": [1])", "chat_template_kwargs", "an object"},
    {R"("continue_final_message": true, "add_generation_prompt": true)", "continue_final_message",
     "exclude each other"},
};

constexpr BadField kBadCompletionFields[] = {
    {R"("logprobs": "yes")", "logprobs", R"(an integer from 0 to 20, not "yes")"},
    {R"("logprobs": 21)", "logprobs", "from 0 to 20"},
    {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs", "from -1 to 20"},
    {R"("top_logprobs": 21)", "top_logprobs", "from -1 to 20"},
    {R"("echo": 1)", "echo", "true or false"},
    {R"("max_tokens": -2)", "max_tokens", "of at least 0, not -2"},
    {R"("suffix": "end")", "suffix", "not supported"},
    {R"("suffix": "text")", "suffix", "not supported"},
    {R"("add_special_tokens": false)", "add_special_tokens", "send token ids"},
    {R"("prompt_embeds": "AA==")", "prompt_embeds", "text or token ids"},
    {R"("best_of": 2)", "best_of", "'best_of' must be 'n' (1)"},
};

TEST(Request, BadFieldsAreNamedWithTheirLimits) {
  const auto expect = [](const BadField& bad, const Refusal& refusal) {
    EXPECT_EQ(refusal.param, bad.param) << bad.fields;
    EXPECT_THAT(refusal.message, HasSubstr(bad.message)) << bad.fields;
  };
  for (const BadField& bad : kBadFields) {
    expect(bad, chat(bad.fields));
    expect(bad, completion(bad.fields));
  }
  for (const BadField& bad : kBadChatFields) expect(bad, chat(bad.fields));
  for (const BadField& bad : kBadCompletionFields) expect(bad, completion(bad.fields));
}

// Whoever prints or walks a schema does it level by level on the stack.
TEST(Request, SchemasThatComeAsTextHaveTheLimitsOfBodies) {
  const auto nested = [](int depth) {
    std::string text;
    for (int i = 0; i < depth; i++) text += R"({\"not\":)";
    return fmt::format(R"("guided_json": "{}true{}")", text, std::string(size_t(depth), '}'));
  };
  EXPECT_EQ(chat(nested(64)).param, "accepted");
  for (const int depth : {65, 1'000'000}) {
    const Refusal refusal = chat(nested(depth));
    EXPECT_EQ(refusal.param, "guided_json");
    EXPECT_THAT(refusal.message, HasSubstr("nested deeper than 64 levels"));
  }
}

TEST(Request, NullsAndValuesThatMeanOffAreAccepted) {
  for (const BadField& bad : kBadFields) {
    const std::string name = std::string(bad.fields).substr(0, std::string(bad.fields).find(':'));
    EXPECT_EQ(chat(name + ": null").param, "accepted") << name;
    EXPECT_EQ(completion(name + ": null").param, "accepted") << name;
  }
  for (const char* fields :
       {R"("response_format": {"type": "text"})",
        R"("n": 1)",
        R"("adapter": "none")",
        R"("echo": false)",
        R"("mirostat": 0)",
        R"("functions": [])",
        R"("tools": [])",
        R"("tool_choice": "auto")",
        R"("hlg": {"enabled": false})",
        R"("logit_bias": {})",
        R"("stop": [])",
        R"("top_k": -1)",
        R"("max_tokens": 99999999999)",
        R"("user": "me")",
        R"("store": true)",
        R"("metadata": {"a": [1, {"b": 2}]})",
        R"("typical_p": 1.0)",
        R"("length_penalty": 0, "early_stopping": true, "use_beam_search": false)",
        R"("lora": [{"id": 0, "scale": 0}], "truncate_prompt_tokens": -1, "response_format": {})",
        R"("tool_choice": {"type": "auto"}, "function_call": "auto", "web_search_options": null)",
        R"("top_n_sigma": -1, "adaptive_target": -1, "lora": [], "reasoning_budget_tokens": -1)",
        R"("skip_special_tokens": true)",
        R"("modalities": ["text"])",
        R"("structured_outputs": {})",
        R"("structured_outputs": {"json": null, "regex": null, "disable_any_whitespace": false})",
        R"("documents": [])",
        R"("chat_template": "")",
        R"("add_special_tokens": false)",
        R"("reasoning_format": "auto")",
        R"("structured_outputs": false)",
        R"("structured_outputs": {"json_object": false})",
        R"("structured_outputs": {"regex": "a", "disable_any_whitespace": false})",
        R"("guided_json": {}, "guided_decoding_backend": "xgrammar")"}) {
    EXPECT_EQ(chat(fields).param, "accepted") << fields;
  }
  EXPECT_EQ(completion(R"("suffix": "")").param, "accepted");
  EXPECT_EQ(completion(R"("best_of": 1)").param, "accepted");
  EXPECT_EQ(completion(R"("add_special_tokens": true)").param, "accepted");
}

TEST(Request, MessagesAndPromptAreRequired) {
  const auto refused = [](const std::string& body) {
    return refusal_of([&] { parse_chat_request(body, {}, kVocab); });
  };
  EXPECT_EQ(refused("{}").param, "messages");
  EXPECT_EQ(refused(R"({"messages": null})").param, "messages");
  EXPECT_EQ(refused(R"({"messages": []})").param, "messages");
  EXPECT_EQ(refused(R"({"messages": "hi"})").param, "messages");
  EXPECT_EQ(refused(R"({"messages": [7]})").param, "messages[0]");
  EXPECT_EQ(refused(R"({"messages": [{"content": "x"}]})").param, "messages[0].role");
  EXPECT_EQ(refused(R"({"messages": [{"role": 1}]})").param, "messages[0].role");
  EXPECT_THAT(refused("[1]").message, HasSubstr("the request body must be an object"));
  const auto prompt = [](const std::string& body) {
    return refusal_of([&] { parse_completion_request(body, {}, kVocab); });
  };
  EXPECT_EQ(prompt("{}").param, "prompt");
  EXPECT_EQ(prompt(R"({"prompt": ""})").param, "prompt");
  EXPECT_EQ(prompt(R"({"prompt": []})").param, "prompt");
  EXPECT_EQ(prompt(R"({"prompt": 7})").param, "prompt");
  EXPECT_EQ(prompt(R"({"prompt": ["a", ""]})").param, "prompt[1]");
  EXPECT_EQ(prompt(R"({"prompt": ["a", 7]})").param, "prompt[1]");
  EXPECT_EQ(prompt(R"({"prompt": [[1], []]})").param, "prompt[1]");
  EXPECT_EQ(prompt(R"({"prompt": [1, 1000]})").param, "prompt[1]");
  EXPECT_EQ(prompt(R"({"prompt": [1, "a"]})").param, "prompt[1]");
  EXPECT_EQ(prompt(R"({"prompt": [1, 18446744073709551615]})").param, "prompt[1]");
  EXPECT_EQ(prompt(R"({"prompt": [[1], [2, -1]]})").param, "prompt[1][1]");
  std::string many = "[\"a\"";
  for (int i = 0; i < 1024; i++) many += ",\"a\"";
  EXPECT_THAT(prompt("{\"prompt\": " + many + "]}").message, HasSubstr("1024 at most"));
  const std::string eight = R"({"prompt": ["a","a","a","a","a","a","a","a")";
  EXPECT_EQ(prompt(eight + R"(], "n": 128})").param, "accepted");
  EXPECT_EQ(prompt(eight + R"(,"a"], "n": 128})").param, "n");
}

TEST(Request, SeedsAreFreshUnlessGiven) {
  const auto seed = [](const std::string& fields, const RequestDefaults& defaults) {
    return parse_completion_request(R"({"prompt": "x")" + fields + "}", defaults, kVocab)
        .generation.sampling.seed;
  };
  EXPECT_NE(seed("", {}), seed("", {}));
  RequestDefaults defaults;
  defaults.seed = 5;
  EXPECT_EQ(seed("", defaults), 5u);
  EXPECT_EQ(seed(R"(, "seed": 18446744073709551615)", defaults), ~uint64_t{0});
  EXPECT_EQ(seed(R"(, "seed": 0)", defaults), 0u);
}

GenerationFields generation_of(const std::string& fields, const RequestDefaults& defaults = {}) {
  return parse_completion_request(R"({"prompt": "x", )" + fields + "}", defaults, kVocab)
      .generation;
}

TEST(Request, MinusOneTokenIsNoLimitWhateverTheDefault) {
  RequestDefaults defaults;
  defaults.limits.max_tokens = 77;
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"})
    EXPECT_EQ(generation_of(fmt::format("\"{}\": -1", name), defaults).limits.max_tokens, -1);
  EXPECT_EQ(generation_of(R"("max_tokens": -1)").limits.max_tokens, -1);
}

// --min-tokens is for requests that say nothing; it must not keep others from being answered.
TEST(Request, ADefaultOfMinTokensGivesWay) {
  RequestDefaults defaults;
  defaults.limits.min_tokens = 600;
  EXPECT_EQ(generation_of(R"("n": 1)", defaults).limits.max_tokens, 600) << "not 512";
  EXPECT_EQ(generation_of(R"("n": 1)", defaults).limits.min_tokens, 600);
  EXPECT_EQ(generation_of(R"("max_tokens": 7)", defaults).limits.min_tokens, 7);
  EXPECT_EQ(generation_of(R"("max_tokens": 7, "min_tokens": 3)", defaults).limits.min_tokens, 3);
  EXPECT_EQ(generation_of(R"("max_tokens": -1)", defaults).limits.min_tokens, 600);
}

// llama-server's names, with its meanings: tools/server/README.md of llama.cpp.
TEST(Request, NamesOfLlamaServer) {
  EXPECT_EQ(generation_of(R"("n_predict": 9)").limits.max_tokens, 9);
  EXPECT_EQ(generation_of(R"("n_predict": 9, "max_tokens": 8)").limits.max_tokens, 8);
  EXPECT_EQ(generation_of(R"("repeat_penalty": 1.1)").sampling.repetition_penalty, 1.1);
  const auto window = [](int n) {
    return generation_of(fmt::format(R"("repeat_penalty": 1.1, "repeat_last_n": {})", n)).sampling;
  };
  EXPECT_EQ(window(64).repetition_context, 64);
  EXPECT_EQ(window(64).repetition_penalty, 1.1);
  EXPECT_EQ(window(-1).repetition_context, 0);
  EXPECT_EQ(window(-1).repetition_penalty, 1.1);
  EXPECT_EQ(window(0).repetition_penalty, 0);
}

// The fields of mlx_lm.server 0.32.2 (server.py, do_POST).
TEST(Request, NamesOfMlxLm) {
  const std::string body =
      R"({"messages": [{"role": "user", "content": "x"}], "model": "default_model",
          "draft_model": "default_model", "num_draft_tokens": 3, "adapters": null, "max_tokens": 7,
          "temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.1,
          "repetition_context_size": 30, "presence_penalty": 0.5, "presence_context_size": 40,
          "frequency_penalty": 0.25, "frequency_context_size": 50, "xtc_probability": 0.5,
          "xtc_threshold": 0.1, "logit_bias": {"3": -1}, "seed": null, "stop": "END",
          "chat_template_kwargs": {"enable_thinking": false}})";
  const ChatRequest chat = parse_chat_request(body, {}, kVocab);
  const SamplingParams& sampling = chat.generation.sampling;
  EXPECT_EQ(chat.generation.limits.max_tokens, 7);
  EXPECT_EQ(sampling.temperature, 0);
  EXPECT_EQ(sampling.repetition_penalty, 1.1);
  EXPECT_EQ(sampling.repetition_context, 30);
  EXPECT_EQ(sampling.presence_penalty, 0.5);
  EXPECT_EQ(sampling.presence_context, 40);
  EXPECT_EQ(sampling.frequency_penalty, 0.25);
  EXPECT_EQ(sampling.frequency_context, 50);
  EXPECT_EQ(sampling.xtc_probability, 0.5);
  EXPECT_EQ(sampling.xtc_threshold, 0.1);
  EXPECT_EQ(sampling.logit_bias, (std::map<TokenId, float>{{3, -1.f}}));
  EXPECT_EQ(chat.generation.stop, std::vector<std::string>{"END"});
  EXPECT_FALSE(chat.maps_roles);
  EXPECT_TRUE(parse_chat_request(R"({"messages": [{"role": "user", "content": "x"}],
                                     "role_mapping": {"user": "U: "}})",
                                 {}, kVocab)
                  .maps_roles);
}

TEST(Request, ReasoningEffortAndTemplateKwargs) {
  const ChatRequest request = parse_chat_request(
      R"({"messages": [{"role": "user"}], "reasoning_effort": "none",
          "chat_template_kwargs": {"z": 1, "a": 2}})",
      {}, kVocab);
  EXPECT_EQ(request.chat.extra.dump(),
            R"({"reasoning_effort":"none","enable_thinking":false,"z":1,"a":2})");
  EXPECT_TRUE(request.chat.add_generation_prompt);
}

TEST(Request, ReasoningEffortMayBeTheTemplatesOwnOrTheMost) {
  const auto extra = [](std::string_view effort) {
    const std::string body =
        fmt::format(R"({{"messages": [{{"role": "user"}}], "reasoning_effort": "{}"}})", effort);
    return parse_chat_request(body, {}, kVocab).chat.extra.dump();
  };
  EXPECT_EQ(extra("auto"), extra("default"));
  EXPECT_THAT(extra("auto"), Not(HasSubstr("reasoning_effort")));
  EXPECT_EQ(extra("max"), R"({"reasoning_effort":"xhigh"})");
}

TEST(Request, AToolChoiceMayBeAnObjectOfItsType) {
  const auto with = [](std::string_view choice) {
    const std::string body = fmt::format(
        R"({{"messages": [{{"role": "user"}}], "tools": [{{"function": {{"name": "g"}}}}],
            "tool_choice": {}}})",
        choice);
    return parse_chat_request(body, {}, kVocab);
  };
  EXPECT_TRUE(with(R"({"type": "any"})").must_call);
  EXPECT_TRUE(with(R"("any")").must_call);
  EXPECT_TRUE(with(R"({"type": "required"})").must_call);
  EXPECT_FALSE(with(R"({"type": "auto"})").must_call);
  EXPECT_TRUE(with(R"({"type": "none"})").chat.tools.is_null());
}

Refusal json_refusal(const std::string& text, const JsonLimits& limits = {}) {
  return refusal_of([&] { parse_json(text, limits); });
}

TEST(Json, BrokenTextIsRefusedWithItsPosition) {
  EXPECT_THAT(json_refusal("").message, HasSubstr("invalid JSON at byte 1"));
  EXPECT_THAT(json_refusal(R"({"a": 1,})").message, HasSubstr("invalid JSON at byte 9"));
  EXPECT_THAT(json_refusal(R"({"a": nan})").message, HasSubstr("invalid JSON at byte 8"));
  EXPECT_THAT(json_refusal("{} {}").message, HasSubstr("invalid JSON at byte 4"));
  EXPECT_THAT(json_refusal("{\"a\": \"\xff\"}").message, HasSubstr("UTF-8"));
  EXPECT_THAT(json_refusal(R"({"a": "\ud800"})").message, HasSubstr("surrogate"));
  EXPECT_THAT(json_refusal(R"({"a": 1e999})").message, HasSubstr("invalid JSON at byte"));
  EXPECT_THAT(json_refusal(std::string("{\"a\": \"\0\"}", 10)).message, HasSubstr("invalid JSON"));
}

TEST(Json, KeepsOrderAndRefusesRepeatedKeys) {
  const std::string text = R"({"z":1,"a":{"y":[true,null,-2.5,"é"],"b":{}},"m":[]})";
  EXPECT_EQ(parse_json(text).dump(), text);
  EXPECT_EQ(parse_json("7").dump(), "7");
  EXPECT_THAT(json_refusal(R"({"a": {"b": 1, "c": 2, "b": 3}})").message,
              HasSubstr(R"(the key "b" occurs twice)"));
  EXPECT_EQ(json_refusal(R"([{"a": 1}, {"a": 2}])").param, "accepted");
}

TEST(Json, DepthAndNumberOfValuesAreLimited) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(json_refusal(nested(64)).param, "accepted");
  EXPECT_THAT(json_refusal(nested(65)).message, HasSubstr("deeper than 64"));
  EXPECT_THAT(json_refusal(std::string(1 << 20, '[')).message, HasSubstr("deeper than 64"));
  EXPECT_EQ(json_refusal("[1,2,3]", {.values = 4}).param, "accepted");
  EXPECT_THAT(json_refusal("[1,2,3,4]", {.values = 4}).message, HasSubstr("more than 4 values"));
  // Many keys in one object must not take quadratic time.
  std::string keys = "{";
  for (int i = 0; i < 200'000; ++i) keys += fmt::format("{}\"k{}\":0", i ? "," : "", i);
  EXPECT_EQ(json_refusal(keys + "}").param, "accepted");
}

}  // namespace
}  // namespace mantou::server
