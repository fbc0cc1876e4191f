// Completions over loopback: OpenAI's legacy shapes, after its API reference.
#include "server/server_test_support.h"

namespace mantou::server {
namespace {

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

}  // namespace
}  // namespace mantou::server
