// What llama-server's other routes tell, and the engine's numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "server/endpoints/llama_test_support.h"

namespace mantou::server {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST_F(ServerTest, TokenizeAndBack) {
  start();
  EXPECT_EQ(post("/tokenize", {{"content", "ab"}}).json(), (json{{"tokens", {'a', 'b'}}}));
  EXPECT_EQ(post("/tokenize", {{"content", {"a", 5, "b"}}}).json()["tokens"], json({'a', 5, 'b'}));
  EXPECT_EQ(post("/tokenize", json::object()).json(), (json{{"tokens", json::array()}}));
  EXPECT_EQ(post("/tokenize", {{"content", "a\xc3\xa9"}, {"with_pieces", true}}).json()["tokens"],
            json::parse(R"([{"id": 97, "piece": "a"}, {"id": 195, "piece": [195]},
                            {"id": 169, "piece": [169]}])"));
  EXPECT_EQ(post("/detokenize", {{"tokens", {'a', 0, 'b'}}}).json(),
            (json{{"content", "a<end>b"}}));
  EXPECT_EQ(post("/detokenize", json::object()).json(), (json{{"content", ""}}));
  const Reply reply = post("/detokenize", {{"tokens", {1, 99999}}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.json()["error"]["param"], "tokens[1]");
}

TEST_F(ServerTest, ApplyTemplateAnswersThePrompt) {
  start();
  EXPECT_EQ(post("/apply-template", chat_body()).json(), (json{{"prompt", "user:Hi\nassistant:"}}));
  EXPECT_EQ(post("/apply-template", chat_body({{"add_generation_prompt", false}})).json()["prompt"],
            "user:Hi\n");
  const json error = post("/apply-template", json::object()).json()["error"];
  EXPECT_EQ(error["code"], 400);
  EXPECT_EQ(error["param"], "messages");
}

TEST_F(ServerTest, PropsSayWhatIsServed) {
  script_.capabilities.max_rows = 3;
  defaults_.sampling.top_k = 7;
  defaults_.sampling.min_p = 0.25;
  start();
  TestClient client(port());
  const json props = client.get("/props").json();
  const json defaults = props["default_generation_settings"];
  EXPECT_THAT(keys_of(defaults["params"]), testing::UnorderedElementsAreArray(kParamKeys));
  EXPECT_EQ(defaults["params"]["top_k"], 7);
  EXPECT_EQ(defaults["params"]["min_p"], 0.25);
  EXPECT_EQ(defaults["params"]["n_predict"], -1);
  EXPECT_EQ(defaults["params"]["seed"], 4294967295u);
  EXPECT_EQ(defaults["n_ctx"], 4096);
  EXPECT_EQ(props["total_slots"], 3);
  EXPECT_EQ(props["model_alias"], "org/tiny");
  EXPECT_EQ(props["modalities"], (json{{"vision", false}, {"video", false}, {"audio", false}}));
  EXPECT_EQ(props["bos_token"], "");
  EXPECT_EQ(props["eos_token"], "<end>");
  // LineTemplate writes roles, contents and tools, nothing of calls or thoughts.
  const json caps = props["chat_template_caps"];
  EXPECT_EQ(caps["supports_system_role"], true);
  EXPECT_EQ(caps["supports_tools"], true);
  EXPECT_EQ(caps["supports_tool_calls"], false);
  EXPECT_EQ(caps["supports_preserve_reasoning"], false);
  EXPECT_EQ(caps["supports_reasoning_effort"], true);
  for (const char* key : {"model_path", "chat_template", "build_info", "is_sleeping"})
    EXPECT_TRUE(props.contains(key)) << key;
}

class CountingTemplate final : public LineTemplate {
 public:
  text::ChatPrompt render(const nlohmann::ordered_json& messages,
                          const text::ChatOptions& options) const override {
    ++renders;
    return LineTemplate::render(messages, options);
  }
  mutable std::atomic<int> renders = 0;
};

TEST_F(ServerTest, PropsRenderNothing) {
  start();
  const auto counting = std::make_shared<CountingTemplate>();
  server_->attach({*engine_, std::make_shared<ByteTokenizer>(), counting, "org/tiny", 1700000000,
                   defaults_, output_format_});
  const int before = counting->renders;
  EXPECT_GT(before, 0);
  for (int i = 0; i < 3; i++) {
    TestClient client(port());
    EXPECT_EQ(client.get("/props").json()["chat_template_caps"]["supports_tools"], true);
  }
  EXPECT_EQ(counting->renders, before);
}

TEST_F(ServerTest, SlotsShowRows) {
  std::atomic<bool> go = false;
  std::atomic<int> steps = 0;
  script_.capabilities.max_rows = 2;
  script_.on_submit = [&](const Work&) {
    if (++steps > 3)
      while (!go) std::this_thread::sleep_for(1ms);
  };
  start();
  TestClient client(port());
  json slots = client.get("/slots?fail_on_no_slot=1").json();
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots[0], json::parse(R"({"id": 0, "n_ctx": 4096, "speculative": false,
                                      "is_processing": false})"));
  TestClient busy(port());
  busy.request("POST", "/completion", prompt_body({{"n_predict", 9}, {"top_k", 3}}).dump());
  wait_until([&] { return steps > 3; });
  slots = client.get("/slots").json();
  EXPECT_THAT(keys_of(slots[0]),
              testing::UnorderedElementsAre(
                  "id", "n_ctx", "speculative", "is_processing", "id_task", "n_prompt_tokens",
                  "n_prompt_tokens_processed", "n_prompt_tokens_cache", "params", "next_token"));
  EXPECT_EQ(slots[0]["is_processing"], true);
  EXPECT_EQ(slots[0]["n_prompt_tokens"], 2);
  EXPECT_EQ(slots[0]["params"]["n_predict"], 9);
  EXPECT_EQ(slots[0]["params"]["top_k"], 3);
  EXPECT_EQ(slots[0]["next_token"][0]["n_decoded"], 3);
  EXPECT_EQ(slots[0]["next_token"][0]["n_remain"], 6);
  EXPECT_EQ(slots[1]["is_processing"], false);
  const json stats = client.get("/stats").json();
  EXPECT_EQ(stats["requests"]["running"], 1);
  EXPECT_EQ(stats["rows"][0]["completion_tokens"], 3);
  go = true;
  EXPECT_EQ(busy.read().status, 200);
  EXPECT_EQ(client.get("/slots").json()[0]["is_processing"], false);
}

TEST_F(ServerTest, NoFreeSlotIsUnavailableWhereAskedFor) {
  std::atomic<bool> go = false;
  std::atomic<int> steps = 0;
  script_.capabilities.max_rows = 1;
  script_.on_submit = [&](const Work&) {
    if (++steps > 1)
      while (!go) std::this_thread::sleep_for(1ms);
  };
  start();
  TestClient client(port()), busy(port());
  busy.request("POST", "/completion", prompt_body().dump());
  wait_until([&] { return steps > 1; });
  EXPECT_EQ(client.get("/slots").status, 200);
  const Reply reply = client.get("/slots?x=1&fail_on_no_slot=1");
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.json()["error"]["type"], "unavailable_error");
  EXPECT_EQ(reply.json()["error"]["code"], 503);
  go = true;
  EXPECT_EQ(busy.read().status, 200);
}

TEST_F(ServerTest, MetricsAndStatsCountWhatWasAnswered) {
  start();
  TestClient client(port());
  EXPECT_EQ(client.post("/completion", prompt_body()).status, 200);
  EXPECT_EQ(client.post("/v1/chat/completions", chat_body({{"max_tokens", 2}})).status, 200);
  const Reply reply = client.get("/metrics");
  EXPECT_EQ(reply.header("content-type"), "text/plain; version=0.0.4");
  EXPECT_EQ(reply.header("process-start-time-unix"), "1700000000");
  for (const char* line :
       {"\nmantou:generation_tokens_total{model_name=\"org/tiny\"} 15\n",
        "\nmantou:request_success_total{model_name=\"org/tiny\",finished_reason=\"stop\"} 1\n",
        "\nmantou:request_success_total{model_name=\"org/tiny\",finished_reason=\"length\"} 1\n",
        "\nmantou:time_to_first_token_seconds_count{model_name=\"org/tiny\"} 2\n",
        "\nllamacpp:tokens_predicted_total 15\n", "\nllamacpp:requests_processing 0\n"})
    EXPECT_THAT(reply.body, HasSubstr(line));
  const json stats = client.get("/stats").json();
  EXPECT_EQ(stats["model"], "org/tiny");
  EXPECT_EQ(stats["requests"]["ended"]["stop"], 1);
  EXPECT_EQ(stats["requests"]["ended"]["length"], 1);
  EXPECT_EQ(stats["tokens"]["generated"], 15);
  EXPECT_EQ(stats["seconds"]["first_token"]["count"], 2);
  EXPECT_GT(stats["tokens"]["generated_per_second"], 0);
  EXPECT_EQ(stats["rows"], json::array());
}

TEST_F(ServerTest, HealthTellsWhetherRequestsAreTaken) {
  server_ = std::make_unique<Server>(options_);
  {
    TestClient client(port());
    const Reply loading = client.get("/health");
    EXPECT_EQ(loading.status, 503);
    EXPECT_EQ(loading.json()["error"],
              (json{{"code", 503}, {"message", "Loading model"}, {"type", "unavailable_error"}}));
  }
  server_.reset();
  start();
  TestClient client(port());
  EXPECT_EQ(client.get("/health").json(), (json{{"status", "ok"}}));
  engine_->stop_accepting();
  const Reply draining = client.get("/health");
  EXPECT_EQ(draining.status, 503);
  EXPECT_EQ(draining.json()["error"]["type"], "unavailable_error");
}

}  // namespace
}  // namespace mantou::server
