// llama-server's own completions. Names and shapes are those of llama-server's own replies (build
// 11434) to the same requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "server/endpoints/llama_test_support.h"

namespace mantou::server {
namespace {

using testing::HasSubstr;
using testing::IsSupersetOf;

std::vector<json> parsed_events(const Reply& reply) {
  std::vector<json> events;
  for (const std::string& event : reply.events()) events.push_back(json::parse(event));
  return events;
}

const std::vector<std::string> kFinalKeys = {"index",
                                             "content",
                                             "tokens",
                                             "id_slot",
                                             "stop",
                                             "model",
                                             "tokens_predicted",
                                             "tokens_evaluated",
                                             "generation_settings",
                                             "prompt",
                                             "has_new_line",
                                             "truncated",
                                             "stop_type",
                                             "stopping_word",
                                             "tokens_cached",
                                             "timings"};

TEST_F(ServerTest, LlamaCompletionIsWholeInOneObject) {
  start();
  for (const char* path : {"/completion", "/completions"}) {
    const Reply reply = post(path, prompt_body({{"stop", {"zzz"}}, {"seed", 5}}));
    ASSERT_EQ(reply.status, 200) << reply.body;
    const json answer = reply.json();
    EXPECT_THAT(keys_of(answer), testing::UnorderedElementsAreArray(kFinalKeys));
    EXPECT_EQ(answer["content"], "Hello, world");
    EXPECT_EQ(answer["stop"], true);
    EXPECT_EQ(answer["stop_type"], "eos");
    EXPECT_EQ(answer["stopping_word"], "");
    EXPECT_EQ(answer["tokens"], json::array());
    EXPECT_EQ(answer["tokens_predicted"], 13);
    EXPECT_EQ(answer["tokens_evaluated"], 2);
    EXPECT_EQ(answer["tokens_cached"], 14);
    EXPECT_EQ(answer["truncated"], false);
    EXPECT_EQ(answer["has_new_line"], false);
    EXPECT_EQ(answer["prompt"], "Hi");
    EXPECT_EQ(answer["model"], "org/tiny");
    EXPECT_EQ(answer["timings"]["prompt_n"], 2);
    EXPECT_EQ(answer["timings"]["predicted_n"], 13);
    const json& settings = answer["generation_settings"];
    EXPECT_THAT(keys_of(settings), IsSupersetOf(kParamKeys));
    EXPECT_THAT(keys_of(settings),
                IsSupersetOf({"dry_sequence_breakers", "stop", "logit_bias", "grammar",
                              "grammar_lazy", "grammar_triggers", "preserved_tokens"}));
    EXPECT_EQ(settings["seed"], 5);
    EXPECT_EQ(settings["stop"], json({"zzz"}));
  }
}

TEST_F(ServerTest, LlamaStopTypesAndWords) {
  script_.token = answer("one\ntwo. three");
  start();
  json reply = post("/completion", prompt_body({{"stop", {"three", "two"}}})).json();
  EXPECT_EQ(reply["content"], "one\n");
  EXPECT_EQ(reply["stop_type"], "word");
  EXPECT_EQ(reply["stopping_word"], "two");
  EXPECT_EQ(reply["has_new_line"], true);
  reply = post("/completion", prompt_body({{"n_predict", 3}})).json();
  EXPECT_EQ(reply["content"], "one");
  EXPECT_EQ(reply["stop_type"], "limit");
  EXPECT_EQ(reply["truncated"], false);
  EXPECT_EQ(reply["has_new_line"], false);
  // Zero writes one token, as llama-server does.
  EXPECT_EQ(post("/completion", prompt_body({{"n_predict", 0}})).json()["content"], "o");
}

TEST_F(ServerTest, LlamaAnswerThatFillsTheContextIsTruncated) {
  script_.token = [](const Request&, int64_t) { return GeneratedToken{'x', 0, {}}; };
  script_.capabilities.context = 8;
  start();
  const json reply = post("/completion", prompt_body({{"n_predict", -1}})).json();
  EXPECT_EQ(reply["content"], "xxxxxx");
  EXPECT_EQ(reply["stop_type"], "limit");
  EXPECT_EQ(reply["truncated"], true);
}

TEST_F(ServerTest, LlamaStreamEndsWithStopTrueAndWithoutDone) {
  start();
  const Reply reply = post("/completion", prompt_body({{"stream", true}}));
  EXPECT_THAT(reply.header("content-type"), HasSubstr("text/event-stream"));
  EXPECT_THAT(reply.body, testing::Not(HasSubstr("[DONE]")));
  const std::vector<json> events = parsed_events(reply);
  std::string text;
  std::vector<int> tokens;
  for (size_t i = 0; i + 1 < events.size(); i++) {
    EXPECT_THAT(keys_of(events[i]),
                testing::UnorderedElementsAre("index", "content", "tokens", "stop", "id_slot",
                                              "tokens_predicted", "tokens_evaluated"));
    EXPECT_EQ(events[i]["stop"], false);
    EXPECT_EQ(events[i]["tokens_evaluated"], 2);
    text += events[i]["content"].get<std::string>();
    for (const json& id : events[i]["tokens"]) tokens.push_back(id);
    EXPECT_EQ(events[i]["tokens_predicted"], int(tokens.size()));
  }
  EXPECT_EQ(text, "Hello, world");
  EXPECT_EQ(std::string(tokens.begin(), tokens.end()), "Hello, world");
  const json& last = events.back();
  EXPECT_THAT(keys_of(last), testing::UnorderedElementsAreArray(kFinalKeys));
  EXPECT_EQ(last["stop"], true);
  EXPECT_EQ(last["content"], "");
  EXPECT_EQ(last["tokens"], json::array());
  EXPECT_EQ(last["stop_type"], "eos");
  EXPECT_EQ(last["tokens_predicted"], 13);
}

TEST_F(ServerTest, LlamaStreamTellsProgressAndTimings) {
  script_.cached_tokens = [](const Request&) { return 4; };
  start();
  const std::vector<json> events =
      parsed_events(post("/completion", {{"prompt", std::string(10, 'p')},
                                         {"stream", true},
                                         {"n_predict", 2},
                                         {"return_progress", true},
                                         {"timings_per_token", true}}));
  const json& first = events.at(0);
  EXPECT_THAT(keys_of(first["prompt_progress"]),
              testing::UnorderedElementsAre("total", "cache", "processed", "time_ms"));
  EXPECT_EQ(first["prompt_progress"]["total"], 10);
  EXPECT_EQ(first["prompt_progress"]["cache"], 4);
  EXPECT_EQ(first["prompt_progress"]["processed"], 4);
  EXPECT_EQ(first["content"], "");
  int with_timings = 0;
  for (const json& event : events) {
    if (event["stop"] == true || event.contains("prompt_progress")) continue;
    ++with_timings;
    EXPECT_EQ(event["timings"]["cache_n"], 4);
    EXPECT_EQ(event["timings"]["prompt_n"], 6);
    EXPECT_EQ(event["timings"]["predicted_n"], event["tokens_predicted"]);
  }
  EXPECT_EQ(with_timings, 2);
}

TEST_F(ServerTest, LlamaProbabilitiesAreOfTheTokens) {
  script_.token = [](const Request& request, int64_t index) {
    EXPECT_TRUE(request.sampling.logprobs);
    EXPECT_EQ(request.sampling.top_logprobs, 2);
    return GeneratedToken{index == 0 ? 'a' : 0, -0.5f, {{'a', -0.5f}, {0xc3, -1.5f}}};
  };
  start();
  const json wish = {{"n_probs", 2}};
  const json whole = post("/completion", prompt_body(wish)).json()["completion_probabilities"];
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_THAT(keys_of(whole[0]),
              testing::UnorderedElementsAre("id", "token", "bytes", "logprob", "top_logprobs"));
  EXPECT_EQ(whole[0]["id"], 'a');
  EXPECT_EQ(whole[0]["token"], "a");
  EXPECT_EQ(whole[0]["bytes"], json({97}));
  EXPECT_EQ(whole[0]["logprob"], -0.5);
  ASSERT_EQ(whole[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(whole[0]["top_logprobs"][1]["id"], 0xc3);
  EXPECT_EQ(whole[0]["top_logprobs"][1]["bytes"], json({0xc3}));
  EXPECT_EQ(whole[0]["top_logprobs"][1]["logprob"], -1.5);
  json streamed = wish;
  streamed["stream"] = true;
  const std::vector<json> events = parsed_events(post("/completion", prompt_body(streamed)));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["completion_probabilities"], whole);
  EXPECT_FALSE(events[1].contains("completion_probabilities"));
}

TEST_F(ServerTest, LlamaTokensComeWhenAskedFor) {
  start();
  const json reply =
      post("/completion", prompt_body({{"return_tokens", true}, {"n_predict", 3}})).json();
  EXPECT_EQ(reply["tokens"], json({'H', 'e', 'l'}));
  EXPECT_FALSE(reply.contains("completion_probabilities"));
  EXPECT_FALSE(last_admitted().sampling.logprobs) << "ids alone need no probabilities";
}

TEST_F(ServerTest, LlamaResponseFieldsPickByPath) {
  start();
  const json wish = {
      {"response_fields", {"content", "generation_settings/n_predict", "timings/prompt_n", "no/x"}},
      {"n_predict", 2}};
  EXPECT_EQ(
      post("/completion", prompt_body(wish)).json(),
      (json{{"content", "He"}, {"generation_settings/n_predict", 2}, {"timings/prompt_n", 2}}));
}

TEST_F(ServerTest, LlamaSeveralAnswersAreAnArray) {
  start();
  const json reply = post("/completion", prompt_body({{"n_cmpl", 2}, {"seed", 3}})).json();
  ASSERT_EQ(reply.size(), 2u);
  for (int i = 0; i < 2; i++) {
    EXPECT_EQ(reply[size_t(i)]["index"], i);
    EXPECT_EQ(reply[size_t(i)]["content"], "Hello, world");
    EXPECT_EQ(reply[size_t(i)]["tokens_predicted"], 13);
    EXPECT_EQ(reply[size_t(i)]["generation_settings"]["seed"], 3 + i);
  }
}

TEST_F(ServerTest, LlamaErrorsHaveItsShape) {
  script_.capabilities.context = 8;
  start();
  Reply reply = post("/completion", json::object());
  EXPECT_EQ(reply.status, 400);
  json error = reply.json()["error"];
  EXPECT_EQ(error["code"], 400);
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_EQ(error["param"], "prompt");
  EXPECT_EQ(error["message"], "'prompt' is required");
  reply = post("/completion", {{"prompt", "much too long"}});
  EXPECT_EQ(reply.status, 400);
  error = reply.json()["error"];
  EXPECT_EQ(error["type"], "exceed_context_size_error");
  EXPECT_EQ(error["n_prompt_tokens"], 13);
  EXPECT_EQ(error["n_ctx"], 8);
  EXPECT_EQ(post("/tokenize", {{"content", 5}}).json()["error"]["code"], 400);
}

TEST_F(ServerTest, LlamaErrorWithinAStreamIsAnEvent) {
  std::atomic<int> steps = 0;
  script_.row_error = [&](const Work&) -> std::optional<Error> {
    if (++steps < 4) return std::nullopt;
    return Error(ErrorCode::kNumerical, "logits are NaN");
  };
  start();
  const std::vector<json> events =
      parsed_events(post("/completion", prompt_body({{"stream", true}})));
  EXPECT_EQ(events.back()["error"]["code"], 500);
  EXPECT_EQ(events.back()["error"]["message"], "logits are NaN");
}

}  // namespace
}  // namespace mantou::server
