// The client of other servers over loopback sockets: against this project's own server, and against
// scripted answers in the shapes of OpenAI's API reference, llama-server and vLLM.
#include "cli/chat/remote_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "cli/chat/test_server.h"
#include "engine/fake_executor.h"
#include "server/server.h"
#include "server/test_client.h"

namespace mantou::cli {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;
using Script = TestServer::Script;

// The example of OpenAI's API reference for streamed chat completions, with usage.
constexpr char kStream[] =
    R"(data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini", "system_fingerprint": "fp_44709d6fcb", "choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}

data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini", "system_fingerprint": "fp_44709d6fcb", "choices":[{"index":0,"delta":{"content":"Hello"},"logprobs":null,"finish_reason":null}]}

data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini", "system_fingerprint": "fp_44709d6fcb", "choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}

data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini", "system_fingerprint": "fp_44709d6fcb", "choices":[], "usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21,"prompt_tokens_details":{"cached_tokens":4}}}

data: [DONE]

)";

constexpr char kOneModel[] = R"({"object":"list","data":[{"id":"m","object":"model"}]})";

std::string chunk(const std::string& delta) {
  return R"(data: {"choices":[{"index":0,"delta":{)" + delta + "}}]}\n\n";
}

Question question(const std::string& text) {
  return {{{{"role", "user"}, {"content", text}}}, {}, {}};
}

// A source whose server lists one model and answers chats with the script.
class RemoteSourceTest : public ::testing::Test {
 protected:
  void start(Script chat, const std::string& models = TestServer::json(200, kOneModel)) {
    server_.emplace([=](const SeenRequest& request) {
      return request.head.starts_with("GET /v1/models ") ? Script{models} : chat;
    });
  }
  RemoteSource connect() {
    return RemoteSource(RemoteClient(server_->url(), options_.remote.api_key), options_,
                        /*interruptible=*/true);
  }
  Reply ask(const Question& asked = question("Hi")) {
    RemoteSource source = connect();
    return source.answer(asked, [this](Piece piece, std::string_view text) {
      shown_ += (piece == Piece::kReasoning ? "<" : "") + std::string(text) +
                (piece == Piece::kReasoning ? ">" : "");
    });
  }
  std::string refused() {
    try {
      connect();
      return "accepted";
    } catch (const Error& error) {
      return error.message();
    }
  }

  Options options_;
  std::optional<TestServer> server_;
  std::string shown_;
};

TEST_F(RemoteSourceTest, StreamsAnAnswer) {
  start({TestServer::stream(kStream)});
  options_.remote.api_key = "secret";
  const Reply reply = ask();
  EXPECT_FALSE(reply.error) << reply.error->message();
  EXPECT_EQ(reply.content, "Hello");
  EXPECT_EQ(shown_, "Hello");
  EXPECT_EQ(reply.end, Reply::End::kStop);
  EXPECT_EQ(reply.stats.prompt_tokens, 9);
  EXPECT_EQ(reply.stats.cached_tokens, 4);
  EXPECT_EQ(reply.stats.completion_tokens, 12);
  const SeenRequest request = server_->requests().back();
  EXPECT_THAT(request.head, HasSubstr("POST /v1/chat/completions HTTP/1.1"));
  EXPECT_THAT(request.head, HasSubstr("Authorization: Bearer secret"));
  EXPECT_THAT(request.head, HasSubstr("Content-Type: application/json"));
  EXPECT_EQ(request.body,
            R"({"model":"m","messages":[{"role":"user","content":"Hi"}],"stream":true,)"
            R"("stream_options":{"include_usage":true}})");
}

TEST_F(RemoteSourceTest, SendsSettingsThatWereGiven) {
  Question asked = question("Hi");
  asked.messages.push_back(
      {{"role", "assistant"}, {"content", "yes"}, {"reasoning_content", "hm"}});
  set(asked.settings, "temperature", "0.5");
  set(asked.settings, "max_tokens", "7");
  set(asked.settings, "stop", "X");
  set(asked.settings, "seed", "3");
  asked.seed = 5;
  ordered_json body = chat_request(asked, "m", R"({"enable_thinking": false})");
  EXPECT_EQ(body["temperature"], 0.5);
  EXPECT_EQ(body["max_tokens"], 7);
  EXPECT_EQ(body["stop"], ordered_json({"X"}));
  EXPECT_EQ(body["seed"], 5);
  EXPECT_EQ(body["chat_template_kwargs"]["enable_thinking"], false);
  EXPECT_EQ(body["messages"][1].dump(), R"({"role":"assistant","content":"yes"})");
  set(asked.settings, "max_tokens", "-1");
  EXPECT_FALSE(chat_request(asked, "m", "").contains("max_tokens"));
}

TEST_F(RemoteSourceTest, ReasoningUnderBothNamesAndWithinTheText) {
  start({TestServer::stream(chunk(R"("reasoning_content":"h")") + chunk(R"("reasoning":"m")") +
                            chunk(R"("content":"yes")") + "data: [DONE]\n\n")});
  Reply reply = ask();
  EXPECT_EQ(reply.reasoning, "hm");
  EXPECT_EQ(reply.content, "yes");
  EXPECT_EQ(shown_, "<h><m>yes");
  start({TestServer::stream(chunk(R"("content":"<think>hm</th")") +
                            chunk(R"("content":"ink>yes")") + "data: [DONE]\n\n")});
  reply = ask();
  EXPECT_EQ(reply.content, "<think>hm</think>yes");
  options_.prompt.reasoning_format = "think";
  reply = ask();
  EXPECT_EQ(reply.content, "yes");
  EXPECT_EQ(reply.reasoning, "hm");
}

TEST_F(RemoteSourceTest, AServerThatDoesNotStreamIsUnderstood) {
  start({TestServer::json(
      200, R"({"choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},)"
           R"("finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":2}})")});
  const Reply reply = ask();
  EXPECT_FALSE(reply.error);
  EXPECT_EQ(reply.content, "Hello");
  EXPECT_EQ(reply.end, Reply::End::kLength);
  EXPECT_EQ(reply.stats.completion_tokens, 2);
  EXPECT_FALSE(reply.stats.cached_tokens);
}

TEST_F(RemoteSourceTest, ErrorsOfTheServer) {
  const struct {
    Script script;
    ErrorCode code;
    const char* says;
  } kCases[] = {
      {{TestServer::json(400, R"({"error":{"message":"'top_p' is odd","type":"x","param":"top_p",)"
                              R"("code":null}})")},
       ErrorCode::kInvalidArgument,
       "answers 400: 'top_p' is odd"},
      {{TestServer::json(401, R"({"error":{"message":"no key"}})")},
       ErrorCode::kInvalidArgument,
       "answers 401: no key (--api-key gives the key)"},
      {{TestServer::json(404, R"({"error":"unknown path"})")},
       ErrorCode::kNotFound,
       "answers 404: unknown path"},
      {{TestServer::json(429, R"({"detail":"later"})")},
       ErrorCode::kResourceExhausted,
       "answers 429: later"},
      {{TestServer::json(503, "not ready\x1b[31m")},
       ErrorCode::kUnavailable,
       "answers 503: not ready?[31m"},
      {{"HTTP/1.1 302 x\r\nLocation: http://127.0.0.1:9/v2\r\nContent-Length: 0\r\n\r\n"},
       ErrorCode::kInvalidArgument,
       "it has moved to http://127.0.0.1:9/v2"},
      {{TestServer::json(200, "<html>")}, ErrorCode::kCorruptData, "something else than OpenAI's"},
      {{""}, ErrorCode::kIo, "cannot reach "},
  };
  for (const auto& each : kCases) {
    start(each.script);
    const Reply reply = ask();
    ASSERT_TRUE(reply.error) << each.says;
    EXPECT_EQ(reply.error->code(), each.code) << each.says;
    EXPECT_THAT(reply.error->message(), HasSubstr(each.says));
    EXPECT_THAT(reply.error->message(), HasSubstr(server_->url() + "/v1/chat/completions"));
    EXPECT_TRUE(reply.empty());
  }
}

TEST_F(RemoteSourceTest, WhatCameBeforeABreakStays) {
  const std::string said = chunk(R"("content":"so f")");
  const struct {
    std::string events;
    const char* says;
  } kCases[] = {
      {said + "data: {\"error\": {\"message\": \"out of memory\"}}\n\n" + said, "out of memory"},
      {said + "event: error\ndata: {\"message\": \"gone\"}\n\n", "gone"},
      {said + "data: {\"choices\": [{\"del", "the server ended it early"},
      {said, "the server ended it early"},
      {said + "data: nonsense\n\n", "no JSON object: nonsense"},
  };
  for (const auto& each : kCases) {
    start({TestServer::stream(each.events)});
    const Reply reply = ask();
    ASSERT_TRUE(reply.error) << each.says;
    EXPECT_THAT(reply.error->message(), HasSubstr(each.says));
    EXPECT_EQ(reply.content, "so f") << each.says;
  }
  // A chunked body that is cut is a failure of the transfer.
  start(
      {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" +
       fmt::format("{:x}\r\n{}\r\n", said.size(), said)});
  const Reply reply = ask();
  ASSERT_TRUE(reply.error);
  EXPECT_THAT(reply.error->message(), HasSubstr("the answer broke off"));
  EXPECT_EQ(reply.content, "so f");
}

TEST_F(RemoteSourceTest, ASignalStopsAnAnswer) {
  start({TestServer::stream(chunk(R"("content":"so f")")), /*hold=*/true});
  RemoteSource source = connect();
  const pthread_t self = ::pthread_self();
  std::thread interrupter;
  const Reply reply = source.answer(question("Hi"), [&](Piece, std::string_view) {
    interrupter = std::thread([self] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ::pthread_kill(self, SIGINT);
    });
  });
  interrupter.join();
  EXPECT_FALSE(reply.error);
  EXPECT_EQ(reply.end, Reply::End::kInterrupted);
  EXPECT_EQ(reply.content, "so f");
}

TEST_F(RemoteSourceTest, ChoosesAModel) {
  const std::string two =
      TestServer::json(200, R"({"data":[{"id":"a","max_model_len":8},{"id":"b"}]})");
  start({}, TestServer::json(200, R"({"data":[{"id":"a","meta":{"n_ctx":77}}]})"));
  EXPECT_EQ(connect().model(), "a");
  EXPECT_EQ(connect().context(), 77);
  start({}, two);
  EXPECT_THAT(refused(), HasSubstr("has 2 models, choose one with --model: a, b"));
  options_.model.model = "a";
  EXPECT_EQ(connect().context(), 8);
  options_.model.model = "alias";
  EXPECT_EQ(connect().model(), "alias");
  start({}, TestServer::json(404, "{}"));
  EXPECT_EQ(connect().model(), "alias");
  options_.model.model.clear();
  EXPECT_THAT(refused(), HasSubstr("/v1/models answers 404"));
  start({}, TestServer::json(200, R"({"data":[]})"));
  EXPECT_THAT(refused(), HasSubstr("lists no model: name one with --model"));
  start({}, TestServer::json(200, "[]"));
  EXPECT_THAT(refused(), HasSubstr("is no list of models"));
  const std::string gone = server_->url();
  server_.reset();
  options_.model.model = "a";
  EXPECT_THROW(RemoteSource(RemoteClient(gone, ""), options_, false), Error);
}

TEST_F(RemoteSourceTest, Addresses) {
  EXPECT_EQ(base_url("localhost:8080"), "http://localhost:8080/v1");
  EXPECT_EQ(base_url("https://example.org/"), "https://example.org/v1");
  EXPECT_EQ(base_url("http://h/v1/"), "http://h/v1");
  EXPECT_EQ(base_url("http://h/api/v4"), "http://h/api/v4");
  for (const char* bad : {"", "http://", "a b", "http://h/v1?x=1"})
    EXPECT_THROW(base_url(bad), Error) << bad;
  EXPECT_THROW(RemoteClient("ftp://h/v1", ""), Error);
}

// The project's own server, with an executor that answers "Hello".
TEST_F(RemoteSourceTest, TalksToTheServerOfThisProject) {
  FakeScript script;
  script.capabilities.vocab_size = 256;
  script.capabilities.context = 2000;
  script.token = [](const Request&, int64_t i) {
    const std::string text = "<think>hm</think>Hello";
    return GeneratedToken{i < int64_t(text.size()) ? TokenId(text[size_t(i)]) : 0, 0, {}};
  };
  Engine engine(std::make_unique<FakeExecutor>(script));
  server::ServerOptions server_options;
  server_options.http.port = 0;
  server_options.access.api_keys = {"k"};
  server::Server server(server_options);
  text::OutputFormat format;
  format.reasoning = "think";
  const server::RequestDefaults defaults;
  server.attach({engine, std::make_shared<server::ByteTokenizer>(),
                 std::make_shared<server::LineTemplate>(), "org/tiny", 0, defaults, format});
  const std::string url = fmt::format("http://127.0.0.1:{}", server.port());
  EXPECT_THROW(RemoteSource(RemoteClient(url, "wrong"), options_, true), Error);
  RemoteSource source(RemoteClient(url, "k"), options_, true);
  EXPECT_EQ(source.model(), "org/tiny");
  EXPECT_EQ(source.context(), 2000);
  Question asked = question("Hi");
  Reply reply = source.answer(asked, [](Piece, std::string_view) {});
  EXPECT_FALSE(reply.error) << reply.error->message();
  EXPECT_EQ(reply.content, "Hello");
  EXPECT_EQ(reply.reasoning, "hm");
  EXPECT_EQ(reply.stats.prompt_tokens, int64_t(std::string("user:Hi\nassistant:").size()));
  EXPECT_TRUE(reply.stats.completion_tokens && reply.stats.cached_tokens);
  asked.messages = ordered_json::array();
  reply = source.answer(asked, [](Piece, std::string_view) {});
  ASSERT_TRUE(reply.error);
  EXPECT_THAT(reply.error->message(), HasSubstr("'messages'"));
  server.stop_accepting();
  engine.shutdown(std::chrono::seconds(5));
  server.stop(std::chrono::seconds(5));
}

}  // namespace
}  // namespace mantou::cli
