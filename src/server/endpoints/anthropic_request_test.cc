// Requests as Anthropic's API reference describes them, to OpenAI's messages and tools.
#include "server/endpoints/anthropic_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace mantou::server {
namespace {

using testing::HasSubstr;

constexpr int kVocab = 1000;

MessagesRequest parse(const std::string& body, const RequestDefaults& defaults = {}) {
  return parse_messages_request(body, defaults, kVocab, MaxTokens::kRequired);
}

// With a message and a limit.
MessagesRequest parse_fields(const std::string& fields, const RequestDefaults& defaults = {}) {
  return parse(
      R"({"max_tokens": 9, "messages": [{"role": "user", "content": "x"}], )" + fields + "}",
      defaults);
}

std::string messages_of(const std::string& messages, const std::string& system = "null") {
  return parse(R"({"max_tokens": 9, "system": )" + system + R"(, "messages": )" + messages + "}")
      .chat.messages.dump();
}

std::string text(const std::string& role, const std::string& content) {
  return Json{{"role", role}, {"content", content}}.dump();
}

TEST(AnthropicMessages, TextIsAStringOrBlocks) {
  EXPECT_EQ(messages_of(R"([{"role": "user", "content": "hi"}])"), "[" + text("user", "hi") + "]");
  EXPECT_EQ(messages_of(R"([{"role": "user", "content": [
                {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": ""}, {"type": "text", "text": "b"}]}])"),
            "[" + text("user", "a\nb") + "]");
}

TEST(AnthropicMessages, TheSystemPromptGoesInFront) {
  const std::string user = R"([{"role": "user", "content": "hi"}])";
  EXPECT_EQ(messages_of(user, R"("be kind")"),
            "[" + text("system", "be kind") + "," + text("user", "hi") + "]");
  EXPECT_EQ(messages_of(user, R"([{"type": "text", "text": "be kind"},
                                  {"type": "text", "text": "be brief"}])"),
            "[" + text("system", "be kind\nbe brief") + "," + text("user", "hi") + "]");
  EXPECT_EQ(messages_of(user, R"("")"), "[" + text("user", "hi") + "]");
}

// What differs with each request must not stand before what does not.
TEST(AnthropicMessages, ClaudeCodesBillingLineIsLeftOut) {
  const std::string user = R"([{"role": "user", "content": "hi"}])";
  const std::string line = "x-anthropic-billing-header: cc_version=2.1.37; cch=1234;";
  EXPECT_EQ(messages_of(user, R"([{"type": "text", "text": ")" + line + R"("},
                                  {"type": "text", "text": "be kind"}])"),
            "[" + text("system", "be kind") + "," + text("user", "hi") + "]");
  EXPECT_EQ(messages_of(user, "\"" + line + "\""), "[" + text("user", "hi") + "]");
  // Anywhere else it is somebody's text.
  EXPECT_EQ(messages_of(user, R"([{"type": "text", "text": "be kind"},
                                  {"type": "text", "text": "x-anthropic-billing-header: y"}])"),
            "[" + text("system", "be kind\nx-anthropic-billing-header: y") + "," +
                text("user", "hi") + "]");
}

TEST(AnthropicMessages, SystemMessagesAmidTheOthers) {
  EXPECT_EQ(messages_of(R"([{"role": "system", "content": "be brief"},
                            {"role": "user", "content": "a"},
                            {"role": "system", "content": [{"type": "text", "text": "now"}]}])",
                        R"("be kind")"),
            "[" + text("system", "be kind\nbe brief") + "," + text("user", "a\nnow") + "]");
}

TEST(AnthropicMessages, TurnsOfOneRoleBecomeOne) {
  EXPECT_EQ(
      messages_of(R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"},
                            {"role": "assistant", "content": "c"},
                            {"role": "assistant", "content": [{"type": "text", "text": "d"}]},
                            {"role": "assistant", "content": []},
                            {"role": "user", "content": "e"}])"),
      "[" + text("user", "a\nb") + "," + text("assistant", "c\nd") + "," + text("user", "e") + "]");
}

TEST(AnthropicMessages, CallsThinkingAndResults) {
  const std::string messages = R"([
      {"role": "user", "content": "Weather in Paris and Rome?"},
      {"role": "assistant", "content": [
          {"type": "thinking", "thinking": "two calls", "signature": "abc"},
          {"type": "redacted_thinking", "data": "xyz"},
          {"type": "text", "text": "I look."},
          {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"z": 1, "a": "Paris"}},
          {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
          {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
          {"type": "tool_use", "id": "toolu_2", "name": "time", "input": {}}]},
      {"role": "user", "content": [
          {"type": "text", "text": "Here."},
          {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"},
          {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": true,
           "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "clock"}]},
          {"type": "tool_result", "tool_use_id": "toolu_3"},
          {"type": "text", "text": "And?"}]}])";
  const Json expected = {
      {{"role", "user"}, {"content", "Weather in Paris and Rome?"}},
      {{"role", "assistant"},
       {"content", "I look."},
       {"reasoning_content", "two calls"},
       {"tool_calls",
        {{{"id", "toolu_1"},
          {"type", "function"},
          {"function", {{"name", "weather"}, {"arguments", {{"z", 1}, {"a", "Paris"}}}}}},
         {{"id", "toolu_2"},
          {"type", "function"},
          {"function", {{"name", "time"}, {"arguments", Json::object()}}}}}}},
      {{"role", "tool"}, {"tool_call_id", "toolu_1"}, {"content", "sunny"}, {"name", "weather"}},
      {{"role", "tool"},
       {"tool_call_id", "toolu_2"},
       {"content", "Error: no\nclock"},
       {"name", "time"}},
      {{"role", "tool"}, {"tool_call_id", "toolu_3"}, {"content", ""}},
      {{"role", "user"}, {"content", "Here.\nAnd?"}}};
  EXPECT_EQ(messages_of(messages), expected.dump());
}

TEST(AnthropicMessages, AnAnswerBegunIsContinued) {
  const auto chat = [](const std::string& last) {
    return parse(R"({"max_tokens": 9, "messages": [{"role": "user", "content": "x"}, )" + last +
                 "]}")
        .chat;
  };
  const ChatRequest prefilled = chat(R"({"role": "assistant", "content": "The answer is ("})");
  EXPECT_TRUE(prefilled.chat.continue_final_message);
  EXPECT_FALSE(prefilled.chat.add_generation_prompt);
  EXPECT_EQ(prefilled.messages.back()["content"], "The answer is (");
  // Nothing to continue.
  const ChatRequest empty = chat(R"({"role": "assistant", "content": ""})");
  EXPECT_FALSE(empty.chat.continue_final_message);
  EXPECT_TRUE(empty.chat.add_generation_prompt);
  EXPECT_EQ(empty.messages.size(), 1u);
}

TEST(AnthropicRequest, ToolsTakeOpenAisForm) {
  const std::string schema = R"({"type":"object","properties":{"z":{"type":"string"},"a":{}}})";
  const std::string tools = R"("tools": [
      {"name": "look", "description": "Looks.", "input_schema": )" +
                            schema + R"(, "strict": true, "cache_control": {"type": "ephemeral"}},
      {"type": "web_search_20250305", "name": "web_search"},
      {"type": "custom", "name": "go", "input_schema": {}}])";
  const std::string expected =
      R"([{"type":"function","function":{"name":"look","description":"Looks.","parameters":)" +
      schema + R"(}},{"type":"function","function":{"name":"go","parameters":{}}}])";
  EXPECT_EQ(parse_fields(tools).chat.chat.tools.dump(), expected);
  EXPECT_EQ(parse_fields(tools + R"(, "tool_choice": {"type": "auto"})").chat.chat.tools.dump(),
            expected);
  EXPECT_TRUE(
      parse_fields(tools + R"(, "tool_choice": {"type": "none"})").chat.chat.tools.is_null());
  EXPECT_TRUE(parse_fields(R"("tools": [])").chat.chat.tools.is_null());

  const ChatRequest any = parse_fields(tools + R"(, "tool_choice": {"type": "any"})").chat;
  EXPECT_TRUE(any.must_call && any.callable_tools.is_null() && !any.generation.one_call);
  const ChatRequest go =
      parse_fields(tools + R"(, "tool_choice": {"type": "tool", "name": "go"})").chat;
  EXPECT_TRUE(go.must_call && go.generation.one_call);
  EXPECT_EQ(go.chat.tools.dump(), expected);
  EXPECT_EQ(go.callable_tools.dump(),
            R"([{"type":"function","function":{"name":"go","parameters":{}}}])");
  const ChatRequest one =
      parse_fields(tools +
                   R"(, "tool_choice": {"type": "auto", "disable_parallel_tool_use": true})")
          .chat;
  EXPECT_TRUE(!one.must_call && one.generation.one_call);
}

TEST(AnthropicRequest, ThinkingAndEffortAreVariablesOfTheTemplate) {
  RequestDefaults defaults;
  defaults.template_kwargs = {{"a", 1}};
  const auto extra = [&](const std::string& fields) {
    return parse_fields(fields, defaults).chat.chat.extra.dump();
  };
  EXPECT_EQ(extra(R"("unknown": 1)"), R"({"a":1})");
  EXPECT_EQ(extra(R"("thinking": {"type": "enabled", "budget_tokens": 1024})"),
            R"({"a":1,"enable_thinking":true})");
  EXPECT_EQ(extra(R"("thinking": {"type": "adaptive"})"), R"({"a":1,"enable_thinking":true})");
  EXPECT_EQ(extra(R"("thinking": {"type": "disabled"})"), R"({"a":1,"enable_thinking":false})");
  EXPECT_EQ(extra(R"("output_config": {"effort": "low"})"), R"({"a":1,"reasoning_effort":"low"})");
  EXPECT_EQ(extra(R"("output_config": {"effort": "max"})"),
            R"({"a":1,"reasoning_effort":"xhigh"})");
  EXPECT_FALSE(parse_fields(R"("thinking": {"type": "adaptive"})").omits_thinking);
  EXPECT_TRUE(
      parse_fields(R"("thinking": {"type": "adaptive", "display": "omitted"})").omits_thinking);
}

TEST(AnthropicRequest, SamplingStopsAndStructuredOutput) {
  const GenerationFields fields =
      parse_fields(R"("temperature": 0.5, "top_k": 7, "top_p": 0.9, "stream": true, "min_p": 0.1,
                      "stop_sequences": ["a", "b"],
                      "metadata": {"user_id": "u"}, "service_tier": "auto",
                      "output_config": {"format": {"type": "json_schema",
                                                   "schema": {"type": "object"}}})")
          .chat.generation;
  EXPECT_EQ(fields.sampling.temperature, 0.5);
  EXPECT_EQ(fields.sampling.top_k, 7);
  EXPECT_EQ(fields.sampling.top_p, 0.9);
  EXPECT_EQ(fields.sampling.min_p, 0.1);
  EXPECT_TRUE(fields.stream);
  EXPECT_EQ(fields.limits.max_tokens, 9);
  EXPECT_THAT(fields.stop, testing::ElementsAre("a", "b"));
  ASSERT_TRUE(fields.grammar);
  EXPECT_EQ(fields.grammar->source.kind, text::GrammarKind::kJsonSchema);
  EXPECT_EQ(fields.grammar->source.text, R"({"type":"object"})");
  EXPECT_EQ(fields.grammar->field, "output_config.format.schema");
  EXPECT_EQ(parse_fields(R"("output_format": {"type": "json_schema", "schema": {}})")
                .chat.generation.grammar->field,
            "output_format.schema");
}

TEST(AnthropicRequest, CountingNeedsNoLimit) {
  const std::string body = R"({"messages": [{"role": "user", "content": "x"}]})";
  EXPECT_EQ(parse_messages_request(body, {}, kVocab, MaxTokens::kUnused).chat.messages.size(), 1u);
}

struct BadRequest {
  const char *fields, *param, *message;
};

// Besides "max_tokens" and a good message, which a repeated key replaces.
constexpr BadRequest kBad[] = {
    {R"("messages": [])", "messages", "at least one message"},
    {R"("messages": [{"role": "tool", "content": "x"}])", "messages[0].role",
     "user, assistant or system"},
    {R"("messages": [{"role": "user"}])", "messages[0].content", "a string or an array of blocks"},
    {R"("messages": [{"role": "user", "content": 7}])", "messages[0].content", "not 7"},
    {R"("messages": [{"role": "user", "content": [7]}])", "messages[0].content[0]", "an object"},
    {R"("messages": [{"role": "user", "content": [{}]}])", "messages[0].content[0].type",
     "is required"},
    {R"("messages": [{"role": "user", "content": [{"type": "text"}]}])",
     "messages[0].content[0].text", "is required"},
    {R"("messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
         {"type": "image", "source": {"type": "url", "url": "http://x"}}]}])",
     "messages[0].content[1].type", "\"image\" are not supported"},
    {R"("messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}])",
     "messages[0].content[0].type", "\"document\" are not supported"},
    {R"("messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
         "content": [{"type": "image", "source": {}}]}]}])",
     "messages[0].content[0].content[0].type", "\"image\" are not supported"},
    {R"("messages": [{"role": "user", "content": [{"type": "tool_result"}]}])",
     "messages[0].content[0].tool_use_id", "is required"},
    {R"("messages": [{"role": "user", "content": [{"type": "tool_use"}]}])",
     "messages[0].content[0].type", "\"tool_use\" are not supported here"},
    {R"("messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t",
         "name": "f", "input": "{}"}]}])",
     "messages[0].content[0].input", "an object"},
    {R"("messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": [
         {"type": "tool_use", "id": "t", "name": "f", "input": {}}]}])",
     "messages", "a message with its tool_result must follow"},
    {R"("messages": [{"role": "assistant", "content": ""}])", "messages", "nothing to answer"},
    {R"("system": 7)", "system", "a string or an array of blocks"},
    {R"("system": [{"type": "image"}])", "system[0].type", "are not supported"},
    {R"("max_tokens": 0)", "max_tokens", "of at least 1"},
    {R"("max_tokens": -1)", "max_tokens", "of at least 1, not -1"},
    {R"("max_tokens": 18446744073709551615)", "max_tokens", "of at least 1"},
    {R"("max_tokens": null)", "max_tokens", "is required"},
    {R"("stop_sequences": ["a", ""])", "stop_sequences[1]", "not empty"},
    {R"("temperature": 9)", "temperature", "from 0 to 5"},
    {R"("tools": {})", "tools", "an array of tools"},
    {R"("tools": [7])", "tools[0]", "an object"},
    {R"("tools": [{"input_schema": {}}])", "tools[0].name", "not empty"},
    {R"("tools": [{"name": "f"}])", "tools[0].input_schema", "a JSON schema, not null"},
    {R"("tools": [{"name": "", "input_schema": {}}])", "tools[0].name", "not empty"},
    {R"("tools": [{"name": 7, "input_schema": {}}])", "tools[0].name", "not 7"},
    {R"("tools": [{"name": "f", "input_schema": {}}, {"name": "f", "input_schema": {}}])",
     "tools[1].name", R"(an earlier tool is called "f")"},
    {R"("tool_choice": "auto")", "tool_choice", "an object"},
    {R"("tool_choice": {"type": "some"})", "tool_choice.type", "auto, any, tool or none"},
    {R"("tool_choice": {"type": "any"})", "tool_choice", "no 'tools'"},
    {R"("tools": [{"name": "g", "input_schema": {}}], "tool_choice": {"type": "tool"})",
     "tool_choice.name", "is required"},
    {R"("tools": [{"name": "g", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "f"})",
     "tool_choice.name", R"(names "f")"},
    {R"("thinking": {"type": "on"})", "thinking.type", "enabled, disabled or adaptive"},
    {R"("thinking": {"type": "enabled", "budget_tokens": 0})", "thinking.budget_tokens",
     "of at least 1"},
    {R"("output_config": {"effort": "none"})", "output_config.effort", "low, medium, high"},
    {R"("output_config": {"format": {"type": "text"}})", "output_config.format.type",
     "json_schema"},
    {R"("output_config": {"format": {"type": "json_schema"}})", "output_config.format.schema",
     "a JSON schema"},
    {R"("output_format": {"type": "text"})", "output_format.type", "json_schema"},
    {R"("output_format": {"type": "json_schema", "schema": {"type": "object"}},
        "output_config": {"format": {"type": "json_schema", "schema": {}}})",
     "output_config.format.schema", "ask for different things"},
    {R"("guided_regex": "a", "output_format": {"type": "json_schema", "schema": {}})",
     "output_format.schema", "'guided_regex' and 'output_format.schema'"},
    {R"("n": 2)", "n", "there is one message"},
    {R"("mcp_servers": [{"url": "http://x"}])", "mcp_servers", "not supported"},
};

TEST(AnthropicRequest, BadFieldsAreNamed) {
  for (const BadRequest& bad : kBad) {
    Json body = {{"max_tokens", 9}, {"messages", {{{"role", "user"}, {"content", "x"}}}}};
    body.update(Json::parse("{" + std::string(bad.fields) + "}"));
    try {
      parse(body.dump());
      ADD_FAILURE() << bad.fields << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.param(), bad.param) << bad.fields;
      EXPECT_THAT(error.message(), HasSubstr(bad.message)) << bad.fields;
      EXPECT_TRUE(error.code() == ErrorCode::kInvalidArgument ||
                  error.code() == ErrorCode::kUnsupported);
    }
  }
}

}  // namespace
}  // namespace mantou::server
