// Chat completions over loopback: OpenAI's shapes, after its API reference.
#include "server/server_test_support.h"
#include "text/grammar.h"

namespace mantou::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(ServerTest, SeveralChoicesAreRowsOfTheirOwn) {
  script_.token = [](const Request& request, int64_t index) {
    const std::string text = "choice " + std::to_string(request.sampling.seed);
    return GeneratedToken{index < int64_t(text.size()) ? TokenId(text[size_t(index)]) : 0, 0, {}};
  };
  start();
  const json wish = {{"n", 3}, {"seed", 7}};
  const Reply reply = post("/v1/chat/completions", chat_body(wish));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json choices = reply.json()["choices"];
  ASSERT_EQ(choices.size(), 3u);
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(choices[size_t(i)]["index"], i);
    EXPECT_EQ(choices[size_t(i)]["message"]["content"], "choice " + std::to_string(7 + i));
  }
  EXPECT_EQ(reply.json()["usage"]["completion_tokens"], 3 * 9);

  json streamed = wish;
  streamed["stream"] = true;
  std::vector<std::string> texts(3), finishes(3);
  for (const std::string& event : post("/v1/chat/completions", chat_body(streamed)).events()) {
    if (event == "[DONE]") continue;
    const json chunk = json::parse(event);
    for (const json& choice : chunk["choices"]) {
      texts[choice["index"]] += choice["delta"].value("content", "");
      if (choice["finish_reason"].is_string()) finishes[choice["index"]] += choice["finish_reason"];
    }
  }
  EXPECT_THAT(texts, testing::ElementsAre("choice 7", "choice 8", "choice 9"));
  EXPECT_THAT(finishes, testing::ElementsAre("stop", "stop", "stop"));
}

// The message that a client puts together from a stream.
json accumulated(const std::vector<std::string>& events, std::string& finish) {
  json message = {{"role", ""}, {"content", ""}, {"reasoning_content", ""}};
  for (const std::string& event : events) {
    if (event == "[DONE]") continue;
    const json chunk = json::parse(event);
    for (const json& choice : chunk["choices"]) {
      const json& delta = choice["delta"];
      for (const char* key : {"role", "content", "reasoning_content"})
        message[key] = message[key].get<std::string>() + delta.value(key, "");
      for (const json& call : delta.value("tool_calls", json::array())) {
        json& calls = message["tool_calls"];
        if (call["index"].get<size_t>() >= calls.size()) {
          calls.push_back(call);
          calls.back().erase("index");
        } else {
          json& arguments = calls[call["index"].get<size_t>()]["function"]["arguments"];
          arguments =
              arguments.get<std::string>() + call["function"]["arguments"].get<std::string>();
        }
      }
      if (choice["finish_reason"].is_string()) finish = choice["finish_reason"];
    }
  }
  return message;
}

TEST_F(ServerTest, ToolCallsAndReasoningAreTakenOutOfWhatIsWritten) {
  output_format_ = {"hermes", "think"};
  script_.token = answer(
      "<think>a map will do</think>I look.<tool_call>{\"name\": \"look\", \"arguments\": "
      "{\"at\": \"the \\\"map\\\"\"}}</tool_call><tool_call>{\"name\": \"look\", "
      "\"arguments\": {\"at\": \"me\", \"far\": [1, 2]}}</tool_call>");
  start();
  const json tools = {
      {{"type", "function"},
       {"function",
        {{"name", "look"},
         {"parameters",
          {{"type", "object"},
           {"properties", {{"at", {{"type", "string"}}}, {"far", {{"type", "array"}}}}}}}}}}};
  const Reply whole = post("/v1/chat/completions", chat_body({{"tools", tools}}));
  ASSERT_EQ(whole.status, 200) << whole.body;
  json choice = whole.json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  json message = choice["message"];
  EXPECT_EQ(message["content"], "I look.");
  EXPECT_EQ(message["reasoning_content"], "a map will do");
  ASSERT_EQ(message["tool_calls"].size(), 2u);
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "look");
  EXPECT_EQ(json::parse(message["tool_calls"][0]["function"]["arguments"].get<std::string>()),
            (json{{"at", "the \"map\""}}));
  EXPECT_EQ(json::parse(message["tool_calls"][1]["function"]["arguments"].get<std::string>()),
            (json{{"at", "me"}, {"far", {1, 2}}}));
  EXPECT_NE(message["tool_calls"][0]["id"], message["tool_calls"][1]["id"]);

  std::string finish;
  json streamed = accumulated(
      post("/v1/chat/completions", chat_body({{"tools", tools}, {"stream", true}})).events(),
      finish);
  EXPECT_EQ(finish, "tool_calls");
  message.erase("refusal");
  for (json* each : {&message, &streamed})
    for (json& call : (*each)["tool_calls"]) call.erase("id");  // of each request its own
  EXPECT_EQ(streamed, message);

  // Without tools nothing is taken for a call.
  choice = post("/v1/chat/completions", chat_body()).json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_THAT(choice["message"]["content"].get<std::string>(),
              testing::StartsWith("I look.<tool_call>"));
  EXPECT_EQ(choice["message"]["reasoning_content"], "a map will do");
}

TEST_F(ServerTest, ChatReplyHasOpenAisShape) {
  script_.cached_tokens = [](const Request&) { return 3; };
  start();
  const Reply reply = post("/v1/chat/completions", chat_body());
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.header("content-type"), "application/json");
  EXPECT_FALSE(reply.header("x-request-id").empty());
  const json body = reply.json();
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_TRUE(body["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(body["model"], "org/tiny");
  EXPECT_TRUE(body["created"].is_number_integer());
  const json expected = {
      {"index", 0},
      {"message", {{"role", "assistant"}, {"content", "Hello, world"}, {"refusal", nullptr}}},
      {"logprobs", nullptr},
      {"finish_reason", "stop"}};
  EXPECT_EQ(body["choices"], json::array({expected}));
  const int prompt = int(std::string("user:Hi\nassistant:").size());
  const json usage = {{"prompt_tokens", prompt},
                      {"completion_tokens", 13},
                      {"total_tokens", prompt + 13},
                      {"prompt_tokens_details", {{"cached_tokens", 3}}}};
  EXPECT_EQ(body["usage"], usage);
  EXPECT_EQ(body["timings"]["predicted_n"], 13);
}

TEST_F(ServerTest, ChatStreamFollowsTheGrammar) {
  start();
  const Reply reply =
      post("/v1/chat/completions",
           chat_body({{"stream", true}, {"stream_options", {{"include_usage", true}}}}));
  ASSERT_EQ(reply.status, 200);
  EXPECT_THAT(reply.header("content-type"), HasSubstr("text/event-stream"));
  std::vector<std::string> events = reply.events();
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events.back(), "[DONE]");
  events.pop_back();
  std::string text;
  std::vector<json> chunks;
  for (const std::string& event : events) chunks.push_back(json::parse(event));
  for (const json& chunk : chunks) {
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    EXPECT_EQ(chunk["id"], chunks[0]["id"]);
    EXPECT_EQ(chunk["created"], chunks[0]["created"]);
  }
  const json usage = chunks.back();
  chunks.pop_back();
  EXPECT_EQ(usage["choices"], json::array());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 13);
  for (size_t i = 0; i < chunks.size(); ++i) {
    EXPECT_TRUE(chunks[i].contains("usage") && chunks[i]["usage"].is_null());
    const json& choice = chunks[i]["choices"][0];
    EXPECT_EQ(choice["finish_reason"], i + 1 == chunks.size() ? json("stop") : json(nullptr));
    text += choice["delta"].value("content", "");
  }
  EXPECT_EQ(chunks[0]["choices"][0]["delta"], (json{{"role", "assistant"}, {"content", ""}}));
  EXPECT_EQ(chunks.back()["choices"][0]["delta"], json::object());
  EXPECT_EQ(text, "Hello, world");
  // Without include_usage no chunk mentions usage.
  EXPECT_THAT(post("/v1/chat/completions", chat_body({{"stream", true}})).body,
              testing::Not(HasSubstr("usage")));
}

// {end token, stop text, stop id, limit} × {chat, completions} × {stream, whole}.
TEST_F(ServerTest, FinishReasonsAndTexts) {
  start();
  struct Case {
    json more;
    std::string text, finish;
  };
  const Case cases[] = {{json::object(), "Hello, world", "stop"},
                        {{{"stop", "o, w"}}, "Hell", "stop"},
                        {{{"stop", {"zzz", "ld", "wor"}}}, "Hello, ", "stop"},
                        {{{"stop_token_ids", {int(',')}}}, "Hello", "stop"},
                        {{{"max_tokens", 3}}, "Hel", "length"},
                        {{{"max_tokens", 9}, {"max_completion_tokens", 4}}, "Hell", "length"},
                        {{{"stop", "world!"}}, "Hello, world", "stop"},
                        {{{"stop", "Hello"}}, "", "stop"},
                        {{{"stop", "llo"}, {"max_tokens", 5}}, "He", "stop"}};
  for (const Case& c : cases) {
    for (const bool chat : {true, false}) {
      for (const bool stream : {true, false}) {
        json body = chat ? chat_body(c.more) : completion_body(c.more);
        body["stream"] = stream;
        const Reply reply = post(chat ? "/v1/chat/completions" : "/v1/completions", body);
        ASSERT_EQ(reply.status, 200) << reply.body;
        std::string text, finish;
        if (stream) {
          const std::vector<std::string> events = reply.events();
          EXPECT_EQ(events.back(), "[DONE]");
          for (size_t i = 0; i + 1 < events.size(); ++i) {
            const json choice = json::parse(events[i])["choices"][0];
            text += chat ? choice["delta"].value("content", "") : choice.value("text", "");
            if (!choice["finish_reason"].is_null()) finish += choice["finish_reason"];
          }
        } else {
          const json choice = reply.json()["choices"][0];
          text = chat ? choice["message"]["content"] : choice["text"];
          finish = choice["finish_reason"];
        }
        EXPECT_EQ(text, c.text) << body;
        EXPECT_EQ(finish, c.finish) << body;
      }
    }
  }
}

bool allows(const text::Grammar& grammar, std::string_view text) {
  text::GrammarMatcher matcher(grammar);
  for (const char c : text)
    if (!matcher.commit(uint8_t(c))) return false;
  return matcher.is_accepting();
}

TEST_F(ServerTest, AToolCallCanBeForced) {
  output_format_ = {"hermes", "none"};
  script_.token = answer(
      "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": 3}}\n</tool_call>"
      "\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>");
  start();
  const json tools = json::parse(R"([
    {"type": "function", "function": {"name": "look", "parameters": {"type": "object",
      "properties": {"at": {"type": "integer"}}, "required": ["at"],
      "additionalProperties": false}}},
    {"type": "function", "function": {"name": "now"}}])");
  const std::string look =
      "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": 3}}\n</tool_call>";
  const std::string now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const auto ask = [&](const json& more) {
    json wish = {{"tools", tools}};
    wish.update(more);
    const json body = post("/v1/chat/completions", chat_body(wish)).json();
    EXPECT_TRUE(body.contains("choices")) << body;
    return body["choices"][0]["message"].value("tool_calls", json::array()).size();
  };
  EXPECT_EQ(ask({{"tool_choice", "required"}}), 2u);
  std::shared_ptr<const text::Grammar> grammar = last_admitted().constraint.grammar;
  ASSERT_TRUE(grammar);
  EXPECT_TRUE(allows(*grammar, look));
  EXPECT_TRUE(allows(*grammar, look + "\n" + now));
  for (const std::string& text : {std::string("I look."), std::string(), look + "."})
    EXPECT_FALSE(allows(*grammar, text)) << text;
  std::string wrong = look;
  wrong.replace(wrong.find('3'), 1, "\"x\"");
  EXPECT_FALSE(allows(*grammar, wrong));

  // One of them, and only one call.
  EXPECT_EQ(ask({{"tool_choice", {{"type", "function"}, {"function", {{"name", "look"}}}}}}), 1u);
  grammar = last_admitted().constraint.grammar;
  EXPECT_TRUE(allows(*grammar, look));
  EXPECT_FALSE(allows(*grammar, now));
  EXPECT_FALSE(allows(*grammar, look + "\n" + look));
  const json alone =
      post("/v1/chat/completions", chat_body({{"tools", tools}, {"parallel_tool_calls", false}}))
          .json()["choices"][0];
  EXPECT_EQ(alone["message"]["tool_calls"].size(), 1u);
  EXPECT_TRUE(alone["message"]["content"].is_null());
  EXPECT_EQ(alone["finish_reason"], "tool_calls");
  EXPECT_FALSE(last_admitted().constraint.grammar);

  // A schema for the answer leaves calls possible.
  const json schema = {{"type", "json_object"}};
  ask({{"response_format", schema}});
  grammar = last_admitted().constraint.grammar;
  for (const std::string& text :
       {look, fmt::format("{}\n{}", look, now), std::string("{\"a\": [1]}")})
    EXPECT_TRUE(allows(*grammar, text)) << text;
  EXPECT_FALSE(allows(*grammar, "{\"a\": [1]}" + look));
  const Reply both =
      post("/v1/chat/completions",
           chat_body({{"tools", tools}, {"tool_choice", "required"}, {"response_format", schema}}));
  EXPECT_EQ(both.status, 400);
  EXPECT_EQ(both.json()["error"]["param"], "tool_choice");
}

TEST_F(ServerTest, FieldsReachTheEngineOverTheDefaults) {
  defaults_.sampling.temperature = 0.25;
  defaults_.sampling.top_k = 40;
  defaults_.sampling.xtc_special = {10, 0};
  defaults_.seed = 11;
  defaults_.limits.max_tokens = 77;
  defaults_.template_kwargs = {{"a", 1}, {"b", 2}};
  start();
  post("/v1/chat/completions", chat_body());
  Request request = last_admitted();
  EXPECT_EQ(request.sampling.temperature, 0.25);
  EXPECT_EQ(request.sampling.top_k, 40);
  EXPECT_EQ(request.sampling.seed, 11u);
  EXPECT_EQ(request.limits.max_tokens, 77);

  post("/v1/chat/completions",
       chat_body({{"temperature", 1.5},
                  {"top_p", 0.9},
                  {"top_k", 5},
                  {"min_p", 0.1},
                  {"seed", -1},
                  {"xtc_probability", 0.5},
                  {"xtc_threshold", 0.2},
                  {"repetition_penalty", 1.1},
                  {"repetition_context_size", 64},
                  {"presence_penalty", -1},
                  {"frequency_penalty", 2},
                  {"logit_bias", {{"65", -100}, {"66", 1.5}}},
                  {"min_tokens", 2},
                  {"ignore_eos", true},
                  {"max_tokens", 8},
                  {"stop_token_ids", {9}},
                  {"cache_prompt", false},
                  {"unknown_field", {1, 2}},
                  {"tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}},
                  {"chat_template_kwargs", {{"b", 3}}}}));
  request = last_admitted();
  const SamplingParams& s = request.sampling;
  EXPECT_EQ(s.temperature, 1.5);
  EXPECT_EQ(s.top_p, 0.9);
  EXPECT_EQ(s.top_k, 5);
  EXPECT_EQ(s.min_p, 0.1);
  EXPECT_EQ(s.seed, ~uint64_t{0});
  EXPECT_EQ(s.xtc_probability, 0.5);
  EXPECT_THAT(s.xtc_special, ElementsAre(10, 0));
  EXPECT_EQ(s.repetition_penalty, 1.1);
  EXPECT_EQ(s.repetition_context, 64);
  EXPECT_EQ(s.presence_penalty, -1);
  EXPECT_EQ(s.frequency_penalty, 2);
  EXPECT_EQ(s.logit_bias, (std::map<TokenId, float>{{65, -100}, {66, 1.5}}));
  EXPECT_EQ(request.limits.min_tokens, 2);
  EXPECT_TRUE(request.limits.ignore_eos);
  EXPECT_EQ(request.limits.max_tokens, 8);
  EXPECT_THAT(request.limits.stop_token_ids, ElementsAre(9));
  EXPECT_FALSE(request.cache.reuse);
  const std::string prompt = ByteTokenizer().decode(request.prompt, true);
  EXPECT_THAT(prompt, HasSubstr("tools:[{\"function\""));
  EXPECT_THAT(prompt, HasSubstr("extra:{\"a\":1,\"b\":3}"));
  EXPECT_THAT(prompt, HasSubstr("assistant:"));

  post("/v1/chat/completions",
       chat_body({{"tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}},
                  {"tool_choice", "none"},
                  {"continue_final_message", true}}));
  const std::string bare = ByteTokenizer().decode(last_admitted().prompt, true);
  EXPECT_EQ(bare, "user:Hi\nextra:{\"a\":1,\"b\":2}\n");
}

TEST_F(ServerTest, TemplateErrorsNameTheMessage) {
  start();
  const Reply reply =
      post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", 7}}}}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.json()["error"]["param"], "messages[0].content");
  EXPECT_EQ(reply.json()["error"]["type"], "invalid_request_error");
}

}  // namespace
}  // namespace mantou::server
