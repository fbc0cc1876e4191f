// The whole server over loopback: real sockets, real engine thread, scripted executor. Shapes are
// those of OpenAI's API reference.
#include "server/server.h"

#include <atomic>
#include <future>
#include <thread>

#include "server/server_test_support.h"
#include "text/grammar.h"

namespace mantou::server {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

json completion_body(const json& more = json::object()) {
  json body = {{"model", "any"}, {"prompt", "Hi"}};
  body.update(more);
  return body;
}

TEST_F(ServerTest, HealthModelsAndFrontPage) {
  start();
  TestClient client(port());
  Reply reply = client.get("/health");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, "{\"status\": \"ok\"}");
  reply = client.get("/v1/models");
  EXPECT_EQ(reply.json()["object"], "list");
  EXPECT_EQ(reply.json()["data"][0]["id"], "org/tiny");
  EXPECT_EQ(reply.json()["data"][0]["object"], "model");
  EXPECT_EQ(reply.json()["data"][0]["created"], 1700000000);
  EXPECT_EQ(reply.json()["data"][0]["context_window"], 4096);
  EXPECT_EQ(client.get("/v1/models/org/tiny").json()["id"], "org/tiny");
  EXPECT_EQ(client.get("/v1/models/org%2Ftiny").json()["id"], "org/tiny");
  reply = client.get("/v1/models/other");
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(reply.json()["error"]["param"], "model");
  for (const char* front : {"/", "/v1"})
    EXPECT_THAT(client.get(front).json()["routes"].dump(), HasSubstr("POST /v1/chat/completions"));
}

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

TEST_F(ServerTest, AnswersLoadingBeforeAttach) {
  server_ = std::make_unique<Server>(options_);
  TestClient client(port());
  for (const char* path : {"/health", "/v1/models"}) {
    const Reply reply = client.get(path);
    EXPECT_EQ(reply.status, 503);
    EXPECT_EQ(reply.json()["status"], "loading model");
  }
  EXPECT_EQ(client.get("/").status, 200);
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

TEST_F(ServerTest, CompletionReplyHasTheLegacyShape) {
  start();
  const json body = post("/v1/completions", completion_body()).json();
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_TRUE(body["id"].get<std::string>().starts_with("cmpl-"));
  const json expected = {
      {"index", 0}, {"text", "Hello, world"}, {"logprobs", nullptr}, {"finish_reason", "stop"}};
  EXPECT_EQ(body["choices"], json::array({expected}));
  EXPECT_EQ(body["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(last_admitted().limits.max_tokens, 512);
}

// "a", then "é" in two tokens, then "b": a token is reported with the text it begins.
TEST_F(ServerTest, LogprobsInBothForms) {
  script_.token = [](const Request&, int64_t i) {
    const std::string text =
        "a\xc3\xa9"
        "b";
    if (i >= int64_t(text.size())) return GeneratedToken{0, 0, {}};
    const TokenId id = uint8_t(text[size_t(i)]);
    return GeneratedToken{id, -0.5f, {{id, -0.5f}, {'z', -INFINITY}}};
  };
  start();
  const json chat = chat_body({{"logprobs", true}, {"top_logprobs", 2}});
  const json whole = post("/v1/chat/completions", chat).json()["choices"][0]["logprobs"];
  ASSERT_EQ(whole["content"].size(), 4u);
  EXPECT_TRUE(whole["refusal"].is_null());
  const json first = {{"id", 97},
                      {"token", "a"},
                      {"logprob", -0.5},
                      {"bytes", {97}},
                      {"top_logprobs",
                       {{{"id", 97}, {"token", "a"}, {"logprob", -0.5}, {"bytes", {97}}},
                        {{"id", 122}, {"token", "z"}, {"logprob", -9999.0}, {"bytes", {122}}}}}};
  EXPECT_EQ(whole["content"][0], first);
  EXPECT_EQ(whole["content"][1]["bytes"], json({0xc3}));
  EXPECT_EQ(whole["content"][1]["token"], "\xef\xbf\xbd");
  EXPECT_EQ(whole["content"][2]["bytes"], json({0xa9}));

  json streamed = json::array();
  json stream_body = chat;
  stream_body["stream"] = true;
  const Reply stream = post("/v1/chat/completions", stream_body);
  for (const std::string& event : stream.events()) {
    if (event == "[DONE]") continue;
    const json logprobs = json::parse(event)["choices"][0]["logprobs"];
    if (logprobs.is_object())
      streamed.insert(streamed.end(), logprobs["content"].begin(), logprobs["content"].end());
  }
  EXPECT_EQ(streamed, whole["content"]);

  const json legacy =
      post("/v1/completions", completion_body({{"logprobs", 1}})).json()["choices"][0]["logprobs"];
  EXPECT_EQ(legacy["tokens"], (json{"a", "bytes:\\xc3", "bytes:\\xa9", "b"}));
  EXPECT_EQ(legacy["token_logprobs"], (json{-0.5, -0.5, -0.5, -0.5}));
  EXPECT_EQ(legacy["text_offset"], (json{0, 1, 2, 2}));
  EXPECT_EQ(legacy["top_logprobs"][0], (json{{"a", -0.5}, {"z", -9999.0}}));
  EXPECT_TRUE(post("/v1/completions", completion_body({{"logprobs", 0}}))
                  .json()["choices"][0]["logprobs"]["top_logprobs"]
                  .is_null());

  // mlx-lm's form.
  EXPECT_EQ(post("/v1/completions", completion_body({{"logprobs", true}, {"top_logprobs", 2}}))
                .json()["choices"][0]["logprobs"]["content"],
            whole["content"]);

  // What a stop text swallowed is not reported.
  json stopped = chat;
  stopped["stop"] =
      "\xc3\xa9"
      "b";
  EXPECT_EQ(
      post("/v1/chat/completions", stopped).json()["choices"][0]["logprobs"]["content"].size(), 1u);
}

// The fake executor gives each token of a prompt minus its id as log-probability.
TEST_F(ServerTest, PromptsAreScored) {
  start();
  const json wish = {{"prompt", {"abc", "de"}}, {"echo", true}, {"logprobs", 0}, {"max_tokens", 0}};
  const json body = post("/v1/completions", wish).json();
  ASSERT_EQ(body["choices"].size(), 2u) << body;
  const json& first = body["choices"][0];
  EXPECT_EQ(first["text"], "abc");
  EXPECT_EQ(first["finish_reason"], "length");
  EXPECT_EQ(first["logprobs"]["tokens"], (json{"a", "b", "c"}));
  EXPECT_EQ(first["logprobs"]["token_logprobs"], (json{nullptr, -98, -99}));
  EXPECT_EQ(first["logprobs"]["text_offset"], (json{0, 1, 2}));
  EXPECT_EQ(body["choices"][1]["text"], "de");
  EXPECT_EQ(body["choices"][1]["logprobs"]["token_logprobs"], (json{nullptr, -101}));
  EXPECT_EQ(body["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
  EXPECT_TRUE(body["usage"]["bypassed"].contains("prefix_cache"));
  EXPECT_EQ(last_admitted().limits.max_tokens, 0);

  json streamed = wish;
  streamed["stream"] = true;
  std::vector<std::string> texts(2);
  std::vector<json> values(2, json::array());
  for (const std::string& event : post("/v1/completions", streamed).events()) {
    if (event == "[DONE]") continue;
    const json choice = json::parse(event)["choices"][0];
    texts[choice["index"]] += choice["text"];
    for (const json& value :
         choice["logprobs"].is_null() ? json::array() : choice["logprobs"]["token_logprobs"])
      values[choice["index"]].push_back(value);
  }
  EXPECT_THAT(texts, testing::ElementsAre("abc", "de"));
  EXPECT_EQ(values[0], (json{nullptr, -98, -99}));
  EXPECT_EQ(values[1], (json{nullptr, -101}));
}

TEST_F(ServerTest, PromptsComeAsTextsOrTokens) {
  start();
  const auto texts = [&](const json& prompt, const json& more = json::object()) {
    json wish = {{"prompt", prompt}, {"echo", true}};
    wish.update(more);
    std::vector<std::string> found;
    const json body = post("/v1/completions", wish).json();
    for (const json& choice : body["choices"]) {
      EXPECT_EQ(choice["index"], found.size());
      found.push_back(choice["text"]);
    }
    return found;
  };
  EXPECT_THAT(texts("ab"), testing::ElementsAre("abHello, world"));
  EXPECT_THAT(texts({97, 98}), testing::ElementsAre("abHello, world"));
  EXPECT_THAT(texts({{97}, {98, 99}}), testing::ElementsAre("aHello, world", "bcHello, world"));
  EXPECT_THAT(texts(json::array({"a", json::array({98})}), {{"n", 2}, {"echo", false}}),
              testing::ElementsAre("Hello, world", "Hello, world", "Hello, world", "Hello, world"));
  const Reply empty = post("/v1/completions", {{"prompt", {"a", ""}}});
  EXPECT_EQ(empty.status, 400);
  EXPECT_EQ(empty.json()["error"]["param"], "prompt[1]");
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
  EXPECT_EQ(ask({{"parallel_tool_calls", false}}), 1u);
  EXPECT_FALSE(last_admitted().constraint.grammar);

  // A schema for the answer leaves calls possible.
  const json schema = {{"type", "json_object"}};
  ask({{"response_format", schema}});
  grammar = last_admitted().constraint.grammar;
  for (const std::string& text : {look, look + "\n" + now, std::string("{\"a\": [1]}")})
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

TEST_F(ServerTest, APromptThatFillsTheContextIsRefusedWithTheNumbers) {
  start();
  for (const bool stream : {true, false}) {
    const Reply reply =
        post("/v1/completions",
             completion_body({{"prompt", std::string(4096, 'x')}, {"stream", stream}}));
    EXPECT_EQ(reply.status, 400);
    const json error = reply.json()["error"];
    EXPECT_EQ(error["code"], "context_length_exceeded");
    EXPECT_EQ(error["param"], "prompt");
    EXPECT_EQ(error["n_prompt_tokens"], 4096);
    EXPECT_EQ(error["n_ctx"], 4096);
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("4096 tokens"));
  }
  EXPECT_EQ(post("/v1/completions", completion_body({{"prompt", std::string(4095, 'x')}})).status,
            200);
}

TEST_F(ServerTest, EngineErrorsHaveTheRightStatus) {
  script_.on_admit = [](const Request& request) {
    if (request.id == 1) fail(ErrorCode::kResourceExhausted, "no memory for this row");
  };
  std::atomic<int> steps{0};
  script_.row_error = [&](const Work& work) -> std::optional<Error> {
    if (work.id >= 2 && work.id <= 3 && ++steps % 4 == 0)
      return Error(ErrorCode::kNumerical, "NaN in the logits");
    return std::nullopt;
  };
  start();
  Reply reply = post("/v1/chat/completions", chat_body({{"stream", true}}));
  EXPECT_EQ(reply.status, 400) << "trying again would not help";
  EXPECT_EQ(reply.json()["error"]["code"], "context_over_budget");

  reply = post("/v1/chat/completions", chat_body());
  EXPECT_EQ(reply.status, 500);
  EXPECT_EQ(reply.json()["error"]["message"], "NaN in the logits");

  TestClient client(port());
  reply = client.post("/v1/chat/completions", chat_body({{"stream", true}}));
  EXPECT_EQ(reply.status, 200);
  const json last = json::parse(reply.events().back());
  EXPECT_EQ(last["error"]["message"], "NaN in the logits");
  EXPECT_EQ(last["error"]["type"], "server_error");
  EXPECT_TRUE(client.closed());

  EXPECT_EQ(post("/v1/chat/completions", chat_body()).status, 200);
}

TEST_F(ServerTest, AFullQueueIs429WithRetryAfter) {
  script_.layers = 100000;
  script_.layer_time = 1ms;
  start({.max_queued = 1});
  TestClient running(port()), waiting(port()), refused(port());
  running.request("POST", "/v1/chat/completions", chat_body().dump());
  wait_until([&] { return !record_->events().empty(); });
  waiting.request("POST", "/v1/chat/completions", chat_body().dump());
  std::this_thread::sleep_for(50ms);
  const Reply reply = refused.post("/v1/chat/completions", chat_body());
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(reply.header("retry-after"), "1");
  EXPECT_EQ(reply.json()["error"]["type"], "rate_limit_error");
  EXPECT_EQ(refused.get("/health").status, 200);
}

// During a silent prefill, in the queue, and while tokens flow.
TEST_F(ServerTest, AClientThatLeavesCancelsItsGeneration) {
  script_.layers = 100000;
  script_.layer_time = 1ms;
  start();
  for (const bool stream : {true, false}) {
    auto first = std::make_unique<TestClient>(port());
    auto second = std::make_unique<TestClient>(port());
    const size_t before = record_->events().size();
    const json body = chat_body({{"stream", stream}});
    first->request("POST", "/v1/chat/completions", body.dump());
    wait_until([&] { return record_->events().size() > before; });
    second->request("POST", "/v1/chat/completions", body.dump());
    std::this_thread::sleep_for(30ms);
    second->close();
    std::this_thread::sleep_for(30ms);
    EXPECT_EQ(record_->live_rows(), 1) << "the running row must not notice";
    const auto left = Clock::now();
    first->close();
    wait_until([&] { return record_->live_rows() == 0; });
    EXPECT_LT(Clock::now() - left, 2s);
  }
}

TEST_F(ServerTest, AClientThatSendsNothingMoreIsAnswered) {
  script_.layers = 20;
  script_.layer_time = 1ms;
  start();
  for (const bool stream : {true, false}) {
    TestClient client(port());
    client.request("POST", "/v1/chat/completions", chat_body({{"stream", stream}}).dump());
    client.finish_sending();
    const Reply reply = client.read_final();
    EXPECT_EQ(reply.status, 200);
    if (stream)
      EXPECT_EQ(reply.events().back(), "[DONE]");
    else
      EXPECT_EQ(reply.json()["choices"][0]["message"]["content"], "Hello, world");
  }
}

TEST_F(ServerTest, AClientThatLeavesDuringTheStreamCancelsIt) {
  script_.token = nullptr;  // endless
  script_.layer_time = 1ms;
  script_.capabilities.context = 1'000'000;
  script_.token = [](const Request&, int64_t) { return GeneratedToken{'x', 0, {}}; };
  start();
  TestClient client(port());
  client.request("POST", "/v1/completions",
                 completion_body({{"stream", true}, {"max_tokens", 900000}}).dump());
  client.read_until("\"text\":\"x\"");
  client.close();
  const auto left = Clock::now();
  wait_until([&] { return record_->live_rows() == 0; });
  EXPECT_LT(Clock::now() - left, 2s);
}

TEST_F(ServerTest, ASlowReaderIsCutOffAtTheLimit) {
  options_.http.limits.pending_bytes = 64 << 10;
  script_.capabilities.context = 10'000'000;
  script_.token = [](const Request&, int64_t) { return GeneratedToken{'x', 0, {}}; };
  start();
  TestClient client(port(), 4096);
  client.request("POST", "/v1/completions",
                 completion_body({{"stream", true}, {"max_tokens", 9'000'000}}).dump());
  wait_until([&] { return !record_->events().empty() && record_->live_rows() == 0; });
  EXPECT_EQ(post("/v1/completions", completion_body({{"max_tokens", 2}})).status, 200);
}

TEST_F(ServerTest, TwoHundredConnectionsAtOnce) {
  start({.max_queued = 400});
  constexpr int kClients = 200;
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < kClients; ++i) clients.push_back(std::make_unique<TestClient>(port()));
  for (int i = 0; i < kClients; ++i)
    clients[size_t(i)]->request("POST", "/v1/chat/completions",
                                chat_body({{"stream", i % 2 == 0}}).dump());
  TestClient probe(port());
  EXPECT_EQ(probe.get("/health").status, 200);
  for (int i = 0; i < kClients; ++i) {
    const Reply reply = clients[size_t(i)]->read();
    ASSERT_EQ(reply.status, 200);
    if (i % 2 == 0) {
      EXPECT_EQ(reply.events().back(), "[DONE]");
    } else {
      EXPECT_EQ(reply.json()["choices"][0]["message"]["content"], "Hello, world");
    }
  }
}

TEST_F(ServerTest, ShutdownEndsStreamsWithAnErrorAndRefusesNewWork) {
  script_.layer_time = 5ms;
  script_.token = [](const Request&, int64_t) { return GeneratedToken{'x', 0, {}}; };
  start();
  TestClient stream(port()), whole(port()), idle(port());
  stream.request("POST", "/v1/completions",
                 completion_body({{"stream", true}, {"max_tokens", 4000}}).dump());
  stream.read_until("\"text\":\"x\"");
  whole.request("POST", "/v1/completions", completion_body().dump());
  EXPECT_EQ(idle.get("/health").status, 200);
  std::this_thread::sleep_for(30ms);
  server_->stop_accepting();
  Reply late = idle.get("/v1/models");
  for (int i = 0; i < 5000 && late.header("connection").empty(); ++i) late = idle.get("/v1/models");
  EXPECT_EQ(late.status, 503) << "the running stream goes on, but nothing new begins";
  EXPECT_EQ(late.header("retry-after"), "1");
  EXPECT_EQ(late.json()["error"]["type"], "unavailable_error");
  EXPECT_TRUE(idle.closed());
  EXPECT_FALSE(engine_->shutdown(20ms));
  server_->stop(5s);
  const Reply refused = whole.read();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.json()["error"]["type"], "unavailable_error");
  const std::string rest = stream.read_until("\r\n0\r\n\r\n");
  EXPECT_THAT(rest, HasSubstr("data: {\"error\""));
  EXPECT_THAT(rest, testing::Not(HasSubstr("[DONE]")));
}

TEST_F(ServerTest, TheApiKeyIsAskedForEverywhereButHealth) {
  options_.access.api_keys = {"secret"};
  start();
  TestClient client(port());
  EXPECT_EQ(client.get("/health").status, 200);
  Reply reply = client.get("/v1/models");
  EXPECT_EQ(reply.status, 401);
  EXPECT_EQ(reply.json()["error"]["type"], "authentication_error");
  for (const char* wrong : {"Bearer secre", "Bearer secret2", "Bearer ", "secret", "Basic secret"})
    EXPECT_EQ(client.get("/v1/models", fmt::format("Authorization: {}\r\n", wrong)).status, 401);
  EXPECT_EQ(client.get("/v1/models", "Authorization: Bearer secret\r\n").status, 200);
}

TEST_F(ServerTest, WhatTheHeadDecidesIsAnsweredBeforeTheBody) {
  options_.access.api_keys = {"secret"};
  start();
  const struct {
    std::string head;
    int status;
  } cases[] = {
      {"POST /v1/chat/completions HTTP/1.1\r\n", 401},
      {"POST /nowhere HTTP/1.1\r\n", 404},
      {"POST /v1/models HTTP/1.1\r\nAuthorization: Bearer secret\r\n", 405},
  };
  for (const auto& [head, status] : cases) {
    for (const char* expect : {"", "Expect: 100-continue\r\n"}) {
      TestClient client(port());
      client.send(head + expect + "Host: localhost\r\nContent-Length: 1000000\r\n\r\n");
      const Reply reply = client.read();
      EXPECT_EQ(reply.status, status) << head;
      EXPECT_EQ(reply.header("connection"), "close");
      EXPECT_TRUE(client.closed());
    }
  }
  TestClient client(port());
  EXPECT_EQ(client.post("/v1/chat/completions", chat_body()).status, 401);
  EXPECT_EQ(client.get("/health").status, 200) << "a body that is there ends no connection";
}

TEST_F(ServerTest, BrowsersOfOtherSitesAreKeptOutUnlessAllowed) {
  start();
  {
    TestClient client(port());
    const Reply reply = client.get("/health", "Origin: http://evil.example\r\n");
    EXPECT_EQ(reply.header("access-control-allow-origin"), "");
  }
  server_.reset();
  engine_.reset();
  options_.http.allowed_origins = {"http://ui.example"};
  start();
  TestClient client(port());
  EXPECT_EQ(client.get("/health", "Origin: http://evil.example\r\n")
                .header("access-control-allow-origin"),
            "");
  // What a browser asks before it lets the openai and the anthropic package of JavaScript send.
  const std::string wanted =
      "anthropic-dangerous-direct-browser-access,anthropic-version,authorization,content-type,"
      "openai-organization,x-api-key,x-stainless-lang,x-stainless-retry-count";
  client.request("OPTIONS", "/v1/chat/completions", {},
                 "Origin: http://ui.example\r\nAccess-Control-Request-Method: POST\r\n"
                 "Access-Control-Request-Headers: " +
                     wanted + "\r\n");
  const Reply reply = client.read();
  EXPECT_EQ(reply.status, 204);
  EXPECT_EQ(reply.header("access-control-allow-origin"), "http://ui.example");
  EXPECT_EQ(reply.header("access-control-allow-headers"), wanted);
  EXPECT_THAT(reply.header("access-control-allow-methods"), HasSubstr("POST"));
  EXPECT_EQ(reply.header("vary"), "Origin");
  EXPECT_EQ(reply.header("allow"), "POST, OPTIONS");
  const Reply answer = client.get("/health", "Origin: http://ui.example\r\n");
  EXPECT_EQ(answer.header("access-control-allow-origin"), "http://ui.example");
  EXPECT_THAT(answer.header("access-control-expose-headers"), HasSubstr("x-request-id"));
  client.request("OPTIONS", "/v1/chat/completions", {},
                 "Origin: http://evil.example\r\nAccess-Control-Request-Headers: x-api-key\r\n");
  const Reply other = client.read();
  EXPECT_EQ(other.header("access-control-allow-origin"), "");
  EXPECT_EQ(other.header("access-control-allow-headers"), "");
}

TEST_F(ServerTest, ThePageOfAnotherNameMayNotUseTheServer) {
  start();
  TestClient client(port());
  client.send("GET /v1/models HTTP/1.1\r\nHost: rebound.example:8080\r\n\r\n");
  const Reply reply = client.read();
  EXPECT_EQ(reply.status, 403);
  EXPECT_THAT(reply.json()["error"]["message"].get<std::string>(),
              HasSubstr("'rebound.example'; if it shall be, start it with --allowed-hosts"));
  EXPECT_EQ(client.get("/v1/models").status, 200);
}

}  // namespace
}  // namespace mantou::server
