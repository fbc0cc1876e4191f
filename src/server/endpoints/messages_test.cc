// Anthropic's protocol over loopback. Shapes and the order of events are those of its API
// reference; streams are put together as its Python package does it (lib/streaming/_messages.py).
#include <atomic>
#include <set>

#include "server/endpoints/anthropic_format.h"
#include "server/server_test_support.h"

namespace mantou::server {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

struct StreamEvent {
  std::string name;
  json data;
};

// Each event has a name, which its data repeats.
std::vector<StreamEvent> stream_events(const std::string& body) {
  std::vector<StreamEvent> events;
  std::string_view rest = body;
  while (!rest.empty()) {
    const size_t end = rest.find("\n\n"), line = rest.find('\n');
    if (end == rest.npos || !rest.starts_with("event: ")) {
      ADD_FAILURE() << "no event: " << rest;
      return events;
    }
    const std::string name(rest.substr(7, line - 7));
    EXPECT_THAT(std::string(rest.substr(line + 1)), StartsWith("data: "));
    events.push_back({name, json::parse(rest.substr(line + 7, end - line - 7))});
    EXPECT_EQ(events.back().data["type"], name);
    rest.remove_prefix(end + 2);
  }
  return events;
}

// The message of a stream; checks the order of its events on the way.
class Accumulator {
 public:
  static json message_of(const std::string& body) {
    Accumulator accumulator;
    for (const StreamEvent& event : stream_events(body)) accumulator.take(event.name, event.data);
    EXPECT_TRUE(accumulator.stopped_) << body;
    return accumulator.message_;
  }

 private:
  void take(const std::string& name, const json& data) {
    EXPECT_FALSE(stopped_) << name << " behind message_stop";
    if (name == "ping") return;
    EXPECT_EQ(message_.is_null(), name == "message_start") << name;
    if (name == "message_start") {
      message_ = data["message"];
      EXPECT_EQ(message_["content"], json::array());
      EXPECT_TRUE(message_["stop_reason"].is_null());
    } else if (name == "content_block_start") {
      EXPECT_FALSE(open_ || ended_);
      open_ = true;
      EXPECT_EQ(data["index"], message_["content"].size());
      message_["content"].push_back(data["content_block"]);
      arguments_.clear();
    } else if (name == "content_block_delta") {
      EXPECT_TRUE(open_);
      EXPECT_EQ(data["index"], message_["content"].size() - 1);
      add(message_["content"].back(), data["delta"]);
    } else if (name == "content_block_stop") {
      EXPECT_TRUE(open_);
      EXPECT_EQ(data["index"], message_["content"].size() - 1);
      open_ = false;
      json& block = message_["content"].back();
      if (block["type"] == "tool_use") block["input"] = json::parse(closed_json(arguments_));
      if (block["type"] == "thinking") {
        EXPECT_NE(block["signature"], "");
      }
    } else if (name == "message_delta") {
      EXPECT_FALSE(open_ || ended_);
      ended_ = true;
      message_.update(data["delta"]);
      message_["usage"].update(data["usage"]);
    } else {
      EXPECT_EQ(name, "message_stop");
      EXPECT_TRUE(ended_);
      stopped_ = true;
    }
  }

  void add(json& block, const json& delta) {
    const auto grow = [&](const char* type, const char* field) {
      EXPECT_EQ(block["type"], type);
      block[field] = block[field].get<std::string>() + delta[field].get<std::string>();
    };
    if (delta["type"] == "text_delta") return grow("text", "text");
    if (delta["type"] == "thinking_delta") return grow("thinking", "thinking");
    if (delta["type"] == "signature_delta") return grow("thinking", "signature");
    EXPECT_EQ(delta["type"], "input_json_delta");
    EXPECT_EQ(block["type"], "tool_use");
    arguments_ += delta["partial_json"];
  }

  json message_;
  std::string arguments_;
  bool open_ = false, ended_ = false, stopped_ = false;
};

json messages_body(const json& more = json::object()) {
  json body = chat_body({{"max_tokens", 1000}});
  body.update(more);
  return body;
}

const json kTools = {
    {{"name", "look"},
     {"input_schema", {{"type", "object"}, {"properties", {{"at", {{"type", "string"}}}}}}}}};

std::string call(const std::string& at) {
  return R"(<tool_call>{"name": "look", "arguments": {"at": ")" + at + R"(", "n": [1, 2]}})" +
         "</tool_call>";
}

class MessagesTest : public ServerTest {
 protected:
  Reply messages(const json& more = json::object()) {
    return post("/v1/messages", messages_body(more));
  }
  // The message, whole and streamed, which must be the same but for the ids made for it.
  json message(json more = json::object()) {
    const Reply whole = messages(more);
    EXPECT_EQ(whole.status, 200) << whole.body;
    more["stream"] = true;
    const Reply stream = messages(more);
    EXPECT_EQ(stream.status, 200) << stream.body;
    json said = whole.json(), streamed = Accumulator::message_of(stream.body);
    for (json* each : {&said, &streamed}) {
      std::set<std::string> ids;
      EXPECT_THAT(each->at("id").get<std::string>(), StartsWith("msg_"));
      each->erase("id");
      for (json& block : each->at("content")) {
        if (block["type"] != "tool_use") continue;
        EXPECT_THAT(block["id"].get<std::string>(), StartsWith("toolu_"));
        EXPECT_TRUE(ids.insert(block["id"]).second);
        block.erase("id");
      }
    }
    EXPECT_EQ(streamed, said);
    return said;
  }
};

TEST_F(MessagesTest, TheReplyHasAnthropicsShape) {
  script_.cached_tokens = [](const Request&) { return 3; };
  start();
  const Reply reply = messages();
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.header("content-type"), "application/json");
  EXPECT_FALSE(reply.header("request-id").empty());
  EXPECT_EQ(reply.header("request-id"), reply.header("x-request-id"));
  const int prompt = int(std::string("user:Hi\nassistant:").size());
  json expected = {{"id", reply.json()["id"]},
                   {"type", "message"},
                   {"role", "assistant"},
                   {"model", "org/tiny"},
                   {"content", {{{"type", "text"}, {"text", "Hello, world"}}}},
                   {"stop_reason", "end_turn"},
                   {"stop_sequence", nullptr},
                   {"usage",
                    {{"input_tokens", prompt - 3},
                     {"cache_creation_input_tokens", 0},
                     {"cache_read_input_tokens", 3},
                     {"output_tokens", 13}}}};
  EXPECT_EQ(reply.json(), expected);
  expected.erase("id");
  EXPECT_EQ(message(), expected);
}

TEST_F(MessagesTest, AStreamIsMadeOfNamedEvents) {
  script_.token = answer("Hi!");
  start();
  const Reply reply = messages({{"stream", true}});
  EXPECT_THAT(reply.header("content-type"), HasSubstr("text/event-stream"));
  EXPECT_FALSE(reply.header("request-id").empty());
  std::vector<std::string> names;
  for (const StreamEvent& event : stream_events(reply.body)) names.push_back(event.name);
  EXPECT_THAT(names, ElementsAre("message_start", "content_block_start", "content_block_delta",
                                 "content_block_delta", "content_block_delta", "content_block_stop",
                                 "message_delta", "message_stop"));
}

TEST_F(MessagesTest, ThinkingTextAndCallsAreBlocksInTheOrderOfWriting) {
  output_format_ = {"hermes", "think"};
  const auto tool_use = [](const char* at) {
    return json{{"type", "tool_use"}, {"name", "look"}, {"input", {{"at", at}, {"n", {1, 2}}}}};
  };
  const auto text = [](const char* said) { return json{{"type", "text"}, {"text", said}}; };
  for (int calls = 0; calls <= 4; calls++) {
    std::string written = "<think>a map\nwill do</think>I look.";
    for (int i = 0; i < calls; i++) written += call(std::to_string(i));
    if (calls == 3) written += "Then" + call("again") + "and wait.";
    script_.token = answer(written);
    start();
    json said = message({{"tools", kTools}});
    json content = {{{"type", "thinking"}, {"thinking", "a map\nwill do"}}, text("I look.")};
    for (int i = 0; i < calls; i++) content.push_back(tool_use(std::to_string(i).c_str()));
    if (calls == 3) content.insert(content.end(), {text("Then"), tool_use("again")});
    if (calls == 3) content.push_back(text("and wait."));
    EXPECT_FALSE(said["content"][0]["signature"].get<std::string>().empty());
    said["content"][0].erase("signature");
    EXPECT_EQ(said["content"], content);
    EXPECT_EQ(said["stop_reason"], calls > 0 ? "tool_use" : "end_turn");
    TearDown();
  }
}

TEST_F(MessagesTest, ThinkingMayBeOmitted) {
  output_format_ = {"none", "think"};
  script_.token = answer("<think>a map</think>I look.");
  start();
  const json shown = message()["content"][0];
  EXPECT_EQ(shown["thinking"], "a map");
  const json content =
      message({{"thinking", {{"type", "adaptive"}, {"display", "omitted"}}}})["content"];
  const json expected = {
      {{"type", "thinking"}, {"thinking", ""}, {"signature", shown["signature"]}},
      {{"type", "text"}, {"text", "I look."}}};
  EXPECT_EQ(content, expected);
}

TEST_F(MessagesTest, ACallCutOffKeepsWhatIsComplete) {
  output_format_ = {"hermes", "none"};
  script_.token = answer(call("Paris"));
  start();
  const std::string until = call("Paris").substr(0, call("Paris").find("[1") + 2);
  const json said = message({{"tools", kTools}, {"max_tokens", until.size()}});
  EXPECT_EQ(said["stop_reason"], "max_tokens");
  EXPECT_EQ(said["content"][0]["input"], (json{{"at", "Paris"}, {"n", json::array()}}));
}

TEST_F(MessagesTest, AnAnswerWithoutTextHasNoBlocks) {
  script_.token = answer("");
  start();
  const json said = message();
  EXPECT_EQ(said["content"], json::array());
  EXPECT_EQ(said["stop_reason"], "end_turn");
  EXPECT_EQ(said["usage"]["output_tokens"], 1);
}

TEST_F(MessagesTest, StopReasons) {
  script_.capabilities.context = 30;  // the prompt takes 18
  start();
  struct Case {
    json more;
    std::string text, reason;
    json sequence = nullptr;
  };
  const Case cases[] = {
      {{{"max_tokens", 3}}, "Hel", "max_tokens"},
      {{{"max_tokens", 12}}, "Hello, world", "max_tokens"},
      {json::object(), "Hello, world", "model_context_window_exceeded"},
      {{{"stop_sequences", {"zzz", "ld", "wor"}}}, "Hello, ", "stop_sequence", "wor"},
      {{{"stop_sequences", {"Hello, w", "Hello"}}}, "", "stop_sequence", "Hello"},
      {{{"stop_sequences", {"llo"}}, {"max_tokens", 5}}, "He", "stop_sequence", "llo"},
      {{{"stop_token_ids", {int(',')}}}, "Hello", "end_turn"}};
  for (const Case& c : cases) {
    const json said = message(c.more);
    EXPECT_EQ(said["content"].empty() ? "" : said["content"][0]["text"], c.text) << c.more;
    EXPECT_EQ(said["stop_reason"], c.reason) << c.more;
    EXPECT_EQ(said["stop_sequence"], c.sequence) << c.more;
  }
}

TEST_F(MessagesTest, FieldsReachTheEngineAndTheTemplate) {
  start();
  messages({{"system", "be kind"},
            {"temperature", 0.5},
            {"top_k", 3},
            {"tools", kTools},
            {"thinking", {{"type", "disabled"}}}});
  const Request request = last_admitted();
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_k, 3);
  EXPECT_EQ(request.limits.max_tokens, 1000);
  const std::string prompt = ByteTokenizer().decode(request.prompt, true);
  EXPECT_THAT(prompt, StartsWith("system:be kind\nuser:Hi\ntools:[{\"type\":\"function\","));
  EXPECT_THAT(prompt, HasSubstr("extra:{\"enable_thinking\":false}"));
  EXPECT_THAT(prompt, testing::EndsWith("assistant:"));
}

// A step reads 2048 tokens at most.
TEST_F(MessagesTest, PingsShowThatALongPromptIsBeingRead) {
  start();
  const Reply reply = messages(
      {{"stream", true}, {"messages", {{{"role", "user"}, {"content", std::string(3000, 'x')}}}}});
  const std::vector<StreamEvent> events = stream_events(reply.body);
  ASSERT_GT(events.size(), 2u);
  EXPECT_EQ(events[0].name, "message_start");
  EXPECT_EQ(events[1].name, "ping");
  Accumulator::message_of(reply.body);
}

TEST_F(MessagesTest, TokensAreCountedAsTheyWouldBeUsed) {
  start();
  const json more = {{"system", "be kind"}, {"tools", kTools}};
  json body = messages_body(more);
  const int64_t used = post("/v1/messages", body).json()["usage"]["input_tokens"];
  body.erase("max_tokens");
  const Reply reply = post("/v1/messages/count_tokens", body);
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.json(), (json{{"input_tokens", used}}));
  body["messages"] = 7;
  EXPECT_EQ(post("/v1/messages/count_tokens", body).json()["error"]["type"],
            "invalid_request_error");
}

// The error's type; checks the rest of its shape.
std::string error_type(const Reply& reply) {
  const json body = reply.json();
  EXPECT_EQ(body["type"], "error") << body;
  EXPECT_EQ(body["request_id"], reply.header("request-id"));
  EXPECT_FALSE(body["error"].value("message", "").empty());
  EXPECT_EQ(body["error"].size(), 2u) << body;
  return body["error"]["type"];
}

TEST_F(MessagesTest, RefusalsHaveAnthropicsShape) {
  options_.http.limits.body_bytes = 10000;
  script_.on_admit = [](const Request& request) {
    if (request.prompt.size() > 3000) fail(ErrorCode::kResourceExhausted, "no room");
    if (request.sampling.top_k == 9) fail(ErrorCode::kNumerical, "NaN in the logits");
  };
  start();
  const auto long_message = [](size_t size) {
    return json{{"messages", {{{"role", "user"}, {"content", std::string(size, 'x')}}}}};
  };
  struct Case {
    json more;
    int status;
    std::string type, message;
  };
  const Case cases[] = {
      {{{"max_tokens", nullptr}}, 400, "invalid_request_error", "'max_tokens' is required"},
      {{{"temperature", 9}}, 400, "invalid_request_error", "'temperature' must be"},
      {{{"tool_choice", {{"type", "any"}}}}, 400, "invalid_request_error", "tool_choice"},
      {long_message(4096), 400, "invalid_request_error", "prompt is too long: 4112 tokens > 4096"},
      {long_message(3500), 400, "invalid_request_error", "no room"},
      {long_message(10000), 413, "request_too_large", "larger than this server accepts"},
      {{{"top_k", 9}}, 500, "api_error", "NaN"}};
  for (const Case& c : cases) {
    for (const bool stream : {true, false}) {
      json more = c.more;
      more["stream"] = stream;
      const Reply reply = messages(more);
      EXPECT_EQ(reply.status, c.status) << reply.body;
      EXPECT_EQ(error_type(reply), c.type);
      EXPECT_THAT(reply.json()["error"]["message"].get<std::string>(), HasSubstr(c.message));
    }
  }
  TestClient client(port());
  client.request("POST", "/v1/messages", "{");
  EXPECT_EQ(error_type(client.read()), "invalid_request_error");
  Reply reply = client.get("/v1/messages");
  EXPECT_EQ(reply.status, 405);
  EXPECT_EQ(error_type(reply), "invalid_request_error");
  reply = client.get("/v1/messages/batches");
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(error_type(reply), "not_found_error");
  // Others keep theirs.
  EXPECT_TRUE(client.get("/v1/chat/completions").json()["error"].contains("param"));
}

TEST_F(MessagesTest, WhatMayPassIsToldApart) {
  options_.access.api_keys = {"secret"};
  server_ = std::make_unique<Server>(options_);
  const std::string body = messages_body().dump();
  {
    TestClient client(port());
    client.request("POST", "/v1/messages", body, "x-api-key: secret\r\n");
    const Reply loading = client.read();
    EXPECT_EQ(loading.status, 503);
    EXPECT_EQ(loading.header("retry-after"), "1");
    EXPECT_EQ(error_type(loading), "overloaded_error");
  }
  script_.layers = 100000;
  script_.layer_time = 1ms;
  start({.max_queued = 1});
  TestClient running(port()), waiting(port()), client(port());
  for (const char* wrong : {"", "x-api-key: secre\r\n", "x-api-key: \r\n"}) {
    client.request("POST", "/v1/messages", body, wrong);
    const Reply refused = client.read();
    EXPECT_EQ(refused.status, 401);
    EXPECT_EQ(error_type(refused), "authentication_error");
  }
  running.request("POST", "/v1/messages", body, "x-api-key: secret\r\n");
  wait_until([&] { return !record_->events().empty(); });
  waiting.request("POST", "/v1/messages", body, "Authorization: Bearer secret\r\n");
  std::this_thread::sleep_for(50ms);
  client.request("POST", "/v1/messages", body, "x-api-key: secret\r\n");
  const Reply full = client.read();
  EXPECT_EQ(full.status, 429);
  EXPECT_EQ(full.header("retry-after"), "1");
  EXPECT_EQ(error_type(full), "rate_limit_error");
}

TEST_F(MessagesTest, AnErrorEndsTheStream) {
  std::atomic<int> steps{0};
  script_.row_error = [&](const Work&) -> std::optional<Error> {
    if (++steps == 4) return Error(ErrorCode::kNumerical, "NaN in the logits");
    return std::nullopt;
  };
  start();
  TestClient client(port());
  const Reply reply = client.post("/v1/messages", messages_body({{"stream", true}}));
  EXPECT_EQ(reply.status, 200);
  const std::vector<StreamEvent> events = stream_events(reply.body);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().name, "error");
  const json expected = {{"type", "error"},
                         {"error", {{"type", "api_error"}, {"message", "NaN in the logits"}}},
                         {"request_id", reply.header("request-id")}};
  EXPECT_EQ(events.back().data, expected);
  EXPECT_TRUE(client.closed());
}

// Expected values: jiter 0.19, from_json(…, partial_mode=True), with which Anthropic's Python
// package reads arguments that are still being written.
TEST(ClosedJson, IsWhatJiterReads) {
  constexpr std::pair<const char*, const char*> kCases[] = {
      {R"({)", R"({})"},
      {R"({"a)", R"({})"},
      {R"({"a")", R"({})"},
      {R"({"a": )", R"({})"},
      {R"({"a": "x\")", R"({})"},
      {R"({"a": "x\"y")", R"({"a": "x\"y"})"},
      {R"({"a": "x\"y", "b")", R"({"a": "x\"y"})"},
      {R"({"a": 1, "b": [)", R"({"a": 1, "b": []})"},
      {R"({"b": [1, {"c")", R"({"b": [1, {}]})"},
      {R"({"b": [1, {"c": nul)", R"({"b": [1, {}]})"},
      {R"({"b": [1, {"c": null}, "d)", R"({"b": [1, {"c": null}]})"},
      {R"({"b": [1, {"c": null}, "d")", R"({"b": [1, {"c": null}, "d"]})"},
      {R"({"e": 12.)", R"({})"},
      {R"({"e": 12.5, "f": {"g": tru)", R"({"e": 12.5, "f": {}})"},
      {R"({"e": {"g": {}}, "h": "{[")", R"({"e": {"g": {}}, "h": "{["})"},
  };
  for (const auto& [beginning, expected] : kCases)
    EXPECT_EQ(json::parse(closed_json(beginning)), json::parse(expected)) << beginning;
  EXPECT_EQ(closed_json(""), "");
}

}  // namespace
}  // namespace mantou::server
