// The whole server over loopback: real sockets, real engine thread, scripted executor. Shapes are
// those of OpenAI's API reference.
#include "server/server.h"

#include <atomic>
#include <future>
#include <thread>

#include "base/log.h"
#include "server/server_test_support.h"

namespace mantou::server {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

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

// Whatever of the request is seen first.
TEST_F(ServerTest, OnePromptOfSeveralThatCanNeverFitIsRefused) {
  start({.steps = {.state_bytes = 100}});
  for (int i = 0; i < 20; i++) {
    const json prompts = {"Hi", "there", std::string(200, 'x')};
    const Reply reply =
        post("/v1/completions", completion_body({{"prompt", prompts}, {"stream", i % 2 == 0}}));
    ASSERT_EQ(reply.status, 400) << reply.body;
    EXPECT_EQ(reply.json()["error"]["code"], "context_length_exceeded");
    EXPECT_EQ(reply.json()["error"]["param"], "prompt[2]");
  }
}

// A byte a token, so that the memory holds 100 of them; the context 4,096.
TEST_F(ServerTest, APromptBeyondTheMemoryIsTooLongInEveryProtocol) {
  start({.steps = {.state_bytes = 100}});
  const std::string text(200, 'x');
  const json messages = {{{"role", "user"}, {"content", text}}};
  for (const bool stream : {true, false}) {
    const auto error_of = [&](const char* path, json body) {
      body["stream"] = stream;
      const Reply reply = post(path, body);
      EXPECT_EQ(reply.status, 400) << reply.body;
      return reply.json()["error"];
    };
    for (const auto& [path, body, field, tokens] :
         {std::tuple("/v1/chat/completions", json{{"messages", messages}}, "messages", 216),
          std::tuple("/v1/completions", json{{"prompt", text}}, "prompt", 200)}) {
      const json error = error_of(path, body);
      EXPECT_EQ(error["code"], "context_length_exceeded");
      EXPECT_EQ(error["param"], field);
      EXPECT_EQ(error["n_prompt_tokens"], tokens);
      EXPECT_EQ(error["n_ctx"], 100);
      EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("--kv-memory"));
    }
    const json llama = error_of("/completion", {{"prompt", text}});
    EXPECT_EQ(llama["type"], "exceed_context_size_error");
    EXPECT_EQ(llama["param"], "prompt");
    EXPECT_EQ(llama["n_ctx"], 100);
    const json anthropic = error_of("/v1/messages", {{"messages", messages}, {"max_tokens", 9}});
    EXPECT_EQ(anthropic["type"], "invalid_request_error");
    EXPECT_THAT(anthropic["message"].get<std::string>(),
                testing::StartsWith("prompt is too long: 216 tokens > 100 maximum"));
  }
  EXPECT_EQ(post("/v1/completions", completion_body({{"prompt", std::string(99, 'x')}})).status,
            200);
  EXPECT_EQ(post("/v1/completions", completion_body({{"prompt", std::string(100, 'x')}})).status,
            400);
  EXPECT_EQ(post("/v1/completions",
                 completion_body({{"prompt", std::string(100, 'x')}, {"max_tokens", 0}}))
                .status,
            200);
}

// As when a grammar turns out to be too large while its answer is written.
TEST_F(ServerTest, WhatARequestGotWrongIsNoFailureOfTheServer) {
  script_.row_error = [](const Work& work) -> std::optional<Error> {
    if (work.id == 1) return Error(ErrorCode::kInvalidArgument, "grammar: too complex");
    if (work.id == 2) return Error(ErrorCode::kNumerical, "NaN in the logits");
    return std::nullopt;
  };
  testing::internal::CaptureStderr();
  set_log_level(LogLevel::kInfo);
  start();
  EXPECT_EQ(post("/v1/chat/completions", chat_body()).status, 400);
  EXPECT_EQ(post("/v1/chat/completions", chat_body()).status, 500);
  EXPECT_EQ(post("/v1/chat/completions", chat_body()).status, 200);
  const std::string log = testing::internal::GetCapturedStderr();
  set_log_level(LogLevel::kWarn);
  EXPECT_THAT(log, HasSubstr("info refused"));
  EXPECT_THAT(log, HasSubstr("warning generation failed"));
  TestClient client(port());
  const std::string metrics = client.get("/metrics").body;
  for (const char* reason : {"error", "invalid", "stop"})
    EXPECT_THAT(metrics, HasSubstr(fmt::format("finished_reason=\"{}\"}} 1\n", reason)));
  const json ended = client.get("/stats").json()["requests"]["ended"];
  EXPECT_EQ(ended["error"], 1);
  EXPECT_EQ(ended["invalid"], 1);
}

TEST_F(ServerTest, AnAnswerThatFailedIsNotReadOn) {
  script_.capabilities.max_rows = 1;
  script_.on_admit = [](const Request& request) {
    if (request.id == 1) fail(ErrorCode::kNumerical, "no luck");
  };
  start();
  EXPECT_EQ(post("/v1/completions", completion_body({{"prompt", {"a", "b", "c"}}})).status, 500);
  wait_until([&] { return engine_->stats().count(FinishReason::kCancelled) == 2; });
  for (const FakeEvent& event : record_->events()) EXPECT_NE(event.kind, FakeEvent::Kind::kStep);
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
  wait_until([&] { return engine_->stats().count(FinishReason::kCancelled) == 1; });
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
  EXPECT_EQ(refused.json()["error"]["message"], "the server is shutting down");
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
  // A name that the target has counts before the header's.
  client.send("GET http://rebound.example/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.read().status, 403);
  client.send("GET http://localhost/v1/models HTTP/1.1\r\nHost: rebound.example\r\n\r\n");
  EXPECT_EQ(client.read().status, 200);
}

}  // namespace
}  // namespace mantou::server
