// Each format by hand: texts as the templates of published models write them, and what they mean.
#include "text/formats/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "text/formats/formats_test_support.h"

namespace mantou::text {
namespace {

using Kind = OutputEvent::Kind;
using Events = std::vector<OutputEvent>;

Events content(const std::string& text) { return {{Kind::kContent, -1, text}}; }
Events reasoning(const std::string& text) { return {{Kind::kReasoning, -1, text}}; }
Events call(int index, const std::string& name, const std::string& arguments) {
  return {{Kind::kCallBegin, index, name},
          {Kind::kCallArguments, index, arguments},
          {Kind::kCallEnd, index, ""}};
}
Events cut_call(int index, const std::string& name, const std::string& arguments) {
  Events events = call(index, name, arguments);
  events.pop_back();
  return events;
}
Events operator+(Events a, const Events& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The text at once and byte by byte.
void expect(const ParserSetup& setup, const std::string& text, const Events& events) {
  EXPECT_EQ(parse_whole(setup, text), events) << text;
  EXPECT_EQ(parse_pieces(setup, text, [] { return 1; }), events) << text;
}
void expect_tools(const std::string& tools, const std::string& text, const Events& events) {
  expect({.format = {.tools = tools}}, text, events);
}
void expect_content(const std::string& tools, const std::string& text) {
  expect_tools(tools, text, content(text));
}

TEST(Hermes, Calls) {
  const Events paris = call(0, "get_weather", R"({"city":"Paris","days":3})");
  expect_tools("hermes",
               "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", "
               "\"days\": 3}}\n</tool_call>",
               paris);
  expect_tools(
      "hermes",
      "Let me see.\n<tool_call>{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Paris\","
      "\"days\":3}}</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n"
      "</tool_call>\n",
      content("Let me see.\n") + paris + call(1, "now", "{}"));
  expect_tools("hermes", "<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>\n\nDone.",
               call(0, "now", "{}") + content("\n\nDone."));
}

TEST(Hermes, OddOrdersAndKeys) {
  const std::string open = "<tool_call>", close = "</tool_call>";
  const Events weather = call(0, "get_weather", R"({"city":"Rome"})");
  for (
      const std::string body : {
          R"({"arguments": {"city": "Rome"}, "name": "get_weather"})",
          R"({"id": 7, "type": {"a": [1, "}"]}, "name": "get_weather", "arguments": {"city": "Rome"}, "x": null})",
          R"({"name": "get_weather", "arguments": "{\"city\": \"Rome\"}"})",
          R"([{"name": "get_weather", "parameters": {"city": "Rome"}}])",
          R"({"name": "get_weather", "arguments": {"city": "Rome"})",  // a brace is missing
          R"({"name": "get_we\u0061ther", "arguments": {"city": "Rome"}})",
      })
    expect_tools("hermes", open + body + close, weather);
  for (const std::string body : {R"({"name": "now"})", R"({"name": "now", "arguments": null})",
                                 R"({"name": "now", "arguments": { }})"})
    expect_tools("hermes", open + body + close, call(0, "now", "{}"));
  expect_tools("hermes", open + R"({"name": "now"} {"name": "now"})" + close,
               call(0, "now", "{}") + call(1, "now", "{}"));
  expect_tools("hermes", open + R"([{"name": "now"}, {"name": "now"}])" + close,
               call(0, "now", "{}") + call(1, "now", "{}"));
}

TEST(Hermes, MarkupInArguments) {
  expect_tools(
      "hermes",
      R"(<tool_call>{"name":"write_file","arguments":{"text":"</tool_call><tool_call>{\"name\": <think>}"}}</tool_call>)",
      call(0, "write_file", R"({"text":"</tool_call><tool_call>{\"name\": <think>}"})"));
}

TEST(Hermes, TextOfJsonIsKept) {
  const auto arguments = [](const std::string& json, const std::string& compact) {
    expect_tools("hermes",
                 R"(<tool_call>{"name":"write_file","arguments":)" + json + "}</tool_call>",
                 call(0, "write_file", compact));
  };
  arguments(R"({"a" : 1.50e+3 , "b" : [ true , null , { } ] })",
            R"({"a":1.50e+3,"b":[true,null,{}]})");
  arguments(R"({"text": "é😀 \u00e9 \ud83d\ude00 \"\\\/\b\f\n\r\t"})",
            R"({"text":"é😀 \u00e9 \ud83d\ude00 \"\\\/\b\f\n\r\t"})");
  arguments("{\"text\": \"a\n\tb\x01\"}",
            R"({"text":"a\n\tb\u0001"})");  // not escaped by the model
  arguments(R"({"text": "C:\dir \u12 \'"})", R"({"text":"C:\\dir \\u12 \\'"})");
  arguments(R"({"text": "\ud83d! \ude00 \ud83d\u0041 \ud83d\ud83d\ude00 \ud83d"})",
            R"({"text":"\ufffd! \ufffd \ufffd\u0041 \ufffd\ud83d\ude00 \ufffd"})");
}

TEST(Hermes, WhatIsNoCallIsContent) {
  for (const std::string text : {
           "<tool_call>{\"name\": \"unknown\", \"arguments\": {\"a\": 1}}</tool_call>",
           "<tool_call>\n{\"arguments\": {\"a\": 1}, \"name\": \"unknown\"}\n</tool_call> yes",
           "<tool_call> or not </tool_call>",
           "<tool_call>{\"nam",
           "<tool_call>{\"name\": 3, \"arguments\": {}}</tool_call>",
           "<tool_call>{\"arguments\": {}}</tool_call>",
           "<tool_call>{\"name\": \"now\", \"arguments\": [1]}</tool_call>",
           "<tool_call>{\"name\": \"now\", \"arguments\": \"text\"}</tool_call>",
           "<tool_call>[]</tool_call>",
           "\n\na < b, <tool_cal",
           "  \n",
       })
    expect_content("hermes", text);
  // A call in the arguments of an unknown tool is not run.
  expect_content(
      "hermes",
      "<tool_call>{\"name\": \"eval\", \"arguments\": {\"x\": \"<tool_call>{\\\"name\\\": "
      "\\\"now\\\"}</tool_call>\"}}</tool_call>");
}

TEST(Hermes, CallsAfterWhatIsNone) {
  const std::string good = "<tool_call>{\"name\": \"now\"}</tool_call>";
  const Events now = call(0, "now", "{}");
  expect_tools("hermes", "<tool_call>" + good, content("<tool_call>") + now);
  expect_tools("hermes", "<tool_<tool_call" + good, content("<tool_<tool_call") + now);
  expect_tools("hermes", "<tool_call>{\"name\": \"no\"}</tool_call>\n" + good,
               content("<tool_call>{\"name\": \"no\"}</tool_call>\n") + now);
  expect_tools("hermes", "<tool_call>{\"name\": \"now\"}\n" + good, now + call(1, "now", "{}"));
  expect_tools("hermes", "<tool_call>{\"name\": \"no\"}\n" + good,
               content("<tool_call>{\"name\": \"no\"}\n") + now);
}

TEST(Hermes, CutCalls) {
  expect_tools("hermes", "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Par",
               cut_call(0, "get_weather", R"({"city":"Par)"));
  expect_tools("hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {}", call(0, "now", "{}"));
  expect_tools("hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {}}\n</tool_",
               call(0, "now", "{}"));
  // Cut or broken, but not before its arguments were complete.
  expect_tools("hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {}, \"id\": \"a",
               call(0, "now", "{}"));
  expect_tools("hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {}, \"id\": ]}</tool_call>",
               call(0, "now", "{}") + content("]}</tool_call>"));
  // Broken in the middle: what was said stays said, the rest is content.
  expect_tools("hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": ]}}</tool_call>",
               cut_call(0, "now", R"({"a":)") + content("]}}</tool_call>"));
}

TEST(Hermes, DeepArgumentsEnd) {
  const auto text = [](int depth) {
    return "<tool_call>{\"name\":\"now\",\"arguments\":{\"a\":" + std::string(depth - 1, '[') +
           std::string(depth - 1, ']') + "}}</tool_call>";
  };
  const std::string compact = "{\"a\":" + std::string(99, '[') + std::string(99, ']') + "}";
  expect_tools("hermes", text(100), call(0, "now", compact));
  const Events events = parse_whole({.format = {.tools = "hermes"}}, text(101));
  EXPECT_EQ(events[1].text, "{\"a\":" + std::string(99, '['));
  EXPECT_EQ(events[2].kind, Kind::kContent);
}

TEST(QwenCoder, Calls) {
  expect_tools("qwen3-coder",
               "I will look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n"
               "</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n"
               "<tool_call>\n<function=now>\n</function>\n</tool_call>",
               content("I will look.\n\n") +
                   call(0, "get_weather", R"({"city":"Paris","days":3})") + call(1, "now", "{}"));
  // Nemotron and Seed write values without line breaks, and Qwen forgets the opening tag.
  expect_tools("qwen3-coder", "<function=get_weather><parameter=city>Paris</parameter></function>",
               call(0, "get_weather", R"({"city":"Paris"})"));
  expect_tools("qwen3-coder",
               "<function=now></function></tool_call>\n<tool_call><function=now></function>",
               call(0, "now", "{}") + call(1, "now", "{}"));
}

void expect_qwen_value(const std::string& key, const std::string& value, const std::string& json) {
  expect_tools("qwen3-coder",
               "<tool_call>\n<function=write_file>\n<parameter=" + key + ">\n" + value +
                   "\n</parameter>\n</function>\n</tool_call>",
               call(0, "write_file", "{\"" + key + "\":" + json + "}"));
}

TEST(QwenCoder, ValuesGoBySchema) {
  expect_qwen_value("path", "12", R"("12")");
  expect_qwen_value("path", "null", R"("null")");
  expect_qwen_value("text", "true", R"("true")");  // anyOf string and null
  expect_qwen_value("path", "", R"("")");
  expect_qwen_value("text", "\n  a\n\n", R"("\n  a\n\n")");
  expect_qwen_value("text", "say \"hi\" \\n\t&lt;", R"("say \"hi\" \\n\t&lt;")");
  expect_qwen_value("mode", "12", "12");
  expect_qwen_value("mode", "twelve", R"("twelve")");
  expect_qwen_value("mode", "", R"("")");
  expect_qwen_value("tags", "[ 1, {\"a\": \"b c\"} ]", R"([1,{"a":"b c"}])");
  expect_qwen_value("tags", "[1", R"("[1")");
  expect_qwen_value("force", "True", "true");
  expect_qwen_value("force", "None", "null");
  expect_qwen_value("unlisted", "1.50", "1.50");
  expect_qwen_value("unlisted", "word", R"("word")");
  expect_qwen_value("tags", std::string(101, '[') + std::string(101, ']'),
                    '"' + std::string(101, '[') + std::string(101, ']') + '"');
}

TEST(QwenCoder, TagsInValues) {
  for (const std::string inner :
       {"</parameter>", "</parameter></parameter>", "</function>", "</tool_call>", "<parameter=x>",
        "</parameter> and <tool_call>", "</param</parameter>x", "<tool_call><function=now>"})
    expect_qwen_value("text", inner, '"' + inner + '"');
}

TEST(QwenCoder, WhatIsNoCallIsContent) {
  for (const std::string text :
       {"<tool_call>\n<function=unknown>\n<parameter=a>\n<tool_call>\n</parameter>\n</function>\n"
        "</tool_call>",
        "<tool_call>{\"name\": \"now\"}</tool_call>", "<function=now", "<function=a<b>",
        "<tool_call>\n<function=", "<tool_call>"})
    expect_content("qwen3-coder", text);
  expect_tools("qwen3-coder", "<tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
               content("<tool_call>\n") + call(0, "now", "{}"));
  expect_tools("qwen3-coder",
               "<tool_call>\n<function=no>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
               content("<tool_call>\n<function=no>\n") + call(0, "now", "{}"));
}

TEST(QwenCoder, CutCalls) {
  expect_tools("qwen3-coder", "<tool_call>\n<function=write_file>\n<parameter=text>\nhal",
               cut_call(0, "write_file", R"({"text":"hal)"));
  expect_tools("qwen3-coder", "<tool_call>\n<function=write_file>\n<parameter=mode>\n12",
               cut_call(0, "write_file", R"({"mode":)"));
  // A call that never closed does not hide the next one.
  expect_tools("qwen3-coder",
               "<tool_call>\n<function=now>\n<tool_call>\n<function=now>\n</function>",
               cut_call(0, "now", "{") + call(1, "now", "{}"));
}

TEST(MiniCpm, Calls) {
  expect_tools("minicpm",
               "Sure.\n<function name=\"get_weather\"><param name=\"city\">Paris</param>"
               "<param name=\"days\">3</param></function>\n<function name=\"now\"></function>",
               content("Sure.\n") + call(0, "get_weather", R"({"city":"Paris","days":3})") +
                   call(1, "now", "{}"));
}

TEST(MiniCpm, Values) {
  const auto value = [](const std::string& key, const std::string& text, const std::string& json) {
    expect_tools(
        "minicpm",
        "<function name=\"write_file\"><param name=\"" + key + "\">" + text + "</param></function>",
        call(0, "write_file", "{\"" + key + "\":" + json + "}"));
  };
  value("text", "<![CDATA[if (a < b && c)\n  x();]]>", R"("if (a < b && c)\n  x();")");
  value("text", "\n<![CDATA[</param></function>]]>\n", R"("</param></function>")");
  value("text", "<![CDATA[a[b[0]]]>", R"("a[b[0]")");
  value("text", "<![CDATA[a]]>b]]>", R"("a]]>b")");
  value("text", "<![CDATA[a]]]]><![CDATA[>b]]>", R"("a]]>b")");
  value("text", "<![CDATA[&lt;]]>", R"("&lt;")");
  value("text", " a &lt; b &amp;&amp; &#233; &#x1F600; &nbsp; &#0; & &a very long one; ",
        R"(" a < b && é 😀 &nbsp; &#0; & &a very long one; ")");
  value("text", "</param>", R"("</param>")");
  value("text", "R&amp", R"("R&amp")");
  value("mode", " 3 ", "3");
  value("tags", "<![CDATA[[1, 2]]]>", "[1,2]");
  value("force", "False", "false");
}

TEST(MiniCpm, WhatIsNoCallIsContent) {
  for (const std::string text :
       {"<function name=\"no\"><param name=\"a\">1</param></function>", "<function name=\"now\"",
        "<function name='now'></function>", "<function>"})
    expect_content("minicpm", text);
}

TEST(Llama3, Calls) {
  const Events weather = call(0, "get_weather", R"({"city":"Paris"})");
  for (const std::string text :
       {R"({"name": "get_weather", "parameters": {"city": "Paris"}})",
        R"(<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}})",
        "\n{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {\"city\": "
        "\"Paris\"}}\n",
        R"([{"name": "get_weather", "arguments": {"city": "Paris"}}])"})
    expect_tools("llama3", text, weather);
  for (const std::string between : {"; ", ";", "\n", ", "})
    expect_tools("llama3",
                 R"({"name": "get_weather", "parameters": {"city": "Paris"}})" + between +
                     R"({"name": "now", "parameters": {}})",
                 weather + call(1, "now", "{}"));
  expect_tools(
      "llama3",
      R"([{"name": "get_weather", "parameters": {"city": "Paris"}}, {"name": "now", "parameters": {}}])",
      weather + call(1, "now", "{}"));
}

TEST(Llama3, WhatIsNoCallIsContent) {
  for (const std::string text :
       {R"({"answer": 42, "name": "now"})", R"({"name": "Bob", "age": 3})", R"({"name": "now"})",
        R"({"name": "unknown", "parameters": {"a": "{\"name\": 1}"}})", R"([1, 2])", "{}", "[]",
        "Use {\"name\": \"now\", \"parameters\": {}} for it.",
        "<|python_tag|>brave_search.call(query=\"x\")", R"({"name": "Bob"}; and more)"})
    expect_content("llama3", text);
}

TEST(Gemma, Calls) {
  expect_tools("gemma",
               "<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>,days:3}<tool_call|>"
               "<|tool_call>call:now{}<tool_call|>",
               call(0, "get_weather", R"({"city":"Paris","days":3})") + call(1, "now", "{}"));
  expect_tools(
      "gemma",
      "Hm.<|tool_call>call:write_file{deep:{a:[1,-2.5,{b:null}],c:true,d:[]},tags:[<|\"|>x<|\"|>,"
      "<|\"|>y<|\"|>],text:<|\"|>say \"hi\", {a:1}\n\\ <tool_call|> é<|\"|>}<tool_call|>",
      content("Hm.") + call(0, "write_file",
                            R"({"deep":{"a":[1,-2.5,{"b":null}],"c":true,"d":[]},"tags":["x","y"],)"
                            R"("text":"say \"hi\", {a:1}\n\\ <tool_call|> é"})"));
  expect_tools("gemma",
               "<start_function_call>call:get_weather{city:<escape>Rome<escape>}"
               "<end_function_call>",
               call(0, "get_weather", R"({"city":"Rome"})"));
}

TEST(Gemma, LooseValues) {
  const auto arguments = [](const std::string& text, const std::string& json) {
    expect_tools("gemma", "<|tool_call>call:now{" + text + "}<tool_call|>", call(0, "now", json));
  };
  arguments("a:None,b:True,c:False", R"({"a":null,"b":true,"c":false})");
  arguments(R"("a": "x\n}", b : 1 , )", R"({"a":"x\n}","b":1})");
  arguments("a:two words,b:[p,q,],c:01", R"({"a":"two words","b":["p","q"],"c":"01"})");
  arguments("<|\"|>a:b<|\"|>:1", R"({"a:b":1})");
  arguments("a:<|\"|><|\"|<|\"|>", R"({"a":"<|\"|"})");
}

TEST(Gemma, WhatIsNoCallIsContent) {
  for (const std::string text :
       {"<|tool_call>call:no{a:<|\"|><|tool_call>call:now{}<tool_call|><|\"|>}<tool_call|>",
        "<|tool_call>now{}<tool_call|>", "<|tool_call>call:now", "<|tool_call>call:n w{}",
        "<|tool_call>"})
    expect_content("gemma", text);
  expect_tools("gemma", "<|tool_call>call:now{a:<|\"|>x", cut_call(0, "now", R"({"a":"x)"));
  expect_tools("gemma", "<|tool_call>call:now{a:}<tool_call|>",
               cut_call(0, "now", R"({"a":)") + content("}<tool_call|>"));
  expect_tools("gemma", "<|tool_call>call:now{a:<|tool_call>call:now{}<tool_call|>",
               cut_call(0, "now", R"({"a":)") + call(1, "now", "{}"));
}

TEST(Mistral, Calls) {
  const Events weather = call(0, "get_weather", R"({"city":"Paris"})");
  expect_tools(
      "mistral",
      R"([TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "abcdefghi"}])",
      weather);
  expect_tools(
      "mistral",
      R"([TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "now", "arguments": {}}])",
      weather + call(1, "now", "{}"));
  expect_tools("mistral",
               R"(So:[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]now[ARGS]{})",
               content("So:") + weather + call(1, "now", "{}"));
  expect_tools("mistral", R"([TOOL_CALLS]get_weather[CALL_ID]a1B2c3D4e[ARGS]{"city": "Paris"})",
               weather);
  expect_tools("mistral", R"([TOOL_CALLS]get_weather{"city": "Paris"})", weather);
  expect_tools("mistral",
               R"([TOOL_CALLS]write_file[ARGS]{"text": "[ARGS][TOOL_CALLS]now[ARGS]{}"})",
               call(0, "write_file", R"({"text":"[ARGS][TOOL_CALLS]now[ARGS]{}"})"));
}

TEST(Mistral, WhatIsNoCallIsContent) {
  for (const std::string text :
       {"[TOOL_CALLS]no[ARGS]{\"a\": 1}", "[TOOL_CALLS][{\"name\": \"no\", \"arguments\": {}}]",
        "[TOOL_CALLS]now[ARGS]", "[TOOL_CALLS]now or later", "[TOOL_CALLS]now[ARG]{}",
        "[1] See [TOOL"})
    expect_content("mistral", text);
  expect_tools("mistral", "[TOOL_CALLS]no[TOOL_CALLS]now[ARGS]{}",
               content("[TOOL_CALLS]no") + call(0, "now", "{}"));
  expect_tools("mistral",
               R"([TOOL_CALLS][{"name": "no", "arguments": {}}, {"name": "now", "arguments": {}}])",
               content(R"([TOOL_CALLS][{"name": "no", "arguments": {}})") + call(0, "now", "{}"));
}

TEST(Reasoning, ThinkTags) {
  ParserSetup setup{.format = {.reasoning = "think"}};
  expect(setup, "<think>\nWell, <b>.\n\nSo.\n</think>\n\nYes.\n",
         reasoning("Well, <b>.\n\nSo.") + content("Yes.\n"));
  expect(setup, "<think>\n\n</think>\n\nYes.", content("Yes."));
  expect(setup, "\n<think>a</think>", reasoning("a"));
  expect(setup, "Tags like <think> are </think> tags.",
         content("Tags like <think> are </think> tags."));
  expect(setup, "<think>never ends </thin", reasoning("never ends </thin"));
  setup.in_reasoning = true;
  expect(setup, "Well.\n</think>\n\nYes.", reasoning("Well.") + content("Yes."));
  expect(setup, "<think>\nWell.\n</think>Yes.", reasoning("Well.") + content("Yes."));
  expect(setup, "a <think> b</think>c", reasoning("a <think> b") + content("c"));
  expect(setup, "never ends\n", reasoning("never ends"));
}

TEST(Reasoning, GemmaChannels) {
  ParserSetup setup{.format = {.reasoning = "gemma-channel"}};
  expect(setup, "<|channel>thought\nWell.\n<channel|>Yes.", reasoning("Well.") + content("Yes."));
  expect(setup, "<|channel>thought\n<channel|>Yes.", content("Yes."));
  expect(setup, "Wait.<|channel>Hm, no.<channel|>Yes.",
         content("Wait.") + reasoning("Hm, no.") + content("Yes."));
  expect(setup, "<|channel>thought\nWell", reasoning("Well"));
  setup.in_reasoning = true;
  expect(setup, "thought\n<channel|>Yes.", reasoning("thought") + content("Yes."));
}

TEST(Reasoning, MistralMarks) {
  expect({.format = {.reasoning = "mistral"}}, "[THINK]Well.[/THINK]Yes.",
         reasoning("Well.") + content("Yes."));
}

TEST(Reasoning, BeforeCallsButNotWithin) {
  const ParserSetup setup{.format = {.tools = "hermes", .reasoning = "think"},
                          .in_reasoning = true};
  expect(setup,
         "Use <tool_call>{\"name\": \"now\"}</tool_call>?\n</think>\n\n<tool_call>\n{\"name\": "
         "\"write_file\", \"arguments\": {\"text\": \"<think>x</think>\"}}\n</tool_call>",
         reasoning("Use <tool_call>{\"name\": \"now\"}</tool_call>?") +
             call(0, "write_file", R"({"text":"<think>x</think>"})"));
}

TEST(Formats, NoToolsNoCalls) {
  const std::string text = "<tool_call>{\"name\": \"now\"}</tool_call>";
  for (const nlohmann::ordered_json& tools :
       {nlohmann::ordered_json(), nlohmann::ordered_json::array()})
    expect({.format = {.tools = "hermes"}, .tools = tools}, text, content(text));
  expect({}, text, content(text));
}

TEST(Formats, ArgumentsStream) {
  const auto parser = make_output_parser({.tools = "hermes"}, test_tools(), false);
  const auto push = [&](const std::string& text) {
    std::vector<OutputEvent> events;
    parser->push(text, events);
    return events;
  };
  EXPECT_EQ(push("Hi <"), content("Hi "));
  EXPECT_EQ(push("b> <tool"), content("<b> "));
  EXPECT_EQ(push("_call>{\"name\": \"get_weather\","), Events());
  EXPECT_EQ(push(" \"arguments\": {"), cut_call(0, "get_weather", "{"));
  EXPECT_EQ(push("\"city\": \"Pa"), (Events{{Kind::kCallArguments, 0, "\"city\":\"Pa"}}));
  EXPECT_EQ(push("ris\"}}"),
            (Events{{Kind::kCallArguments, 0, "ris\"}"}, {Kind::kCallEnd, 0, ""}}));
}

TEST(Formats, PromptsThatBeginReasoning) {
  const OutputFormat think{.reasoning = "think"}, gemma{.reasoning = "gemma-channel"};
  EXPECT_TRUE(begins_in_reasoning(think, "<|im_start|>assistant\n<think>\n", false));
  EXPECT_FALSE(begins_in_reasoning(think, "assistant\n<think>\n\n</think>\n\n", false));
  EXPECT_FALSE(begins_in_reasoning(think, "user\nWhat is <think>?\nassistant\n", false));
  EXPECT_FALSE(begins_in_reasoning(think, "assistant\n", false));
  EXPECT_TRUE(begins_in_reasoning(think, "assistant\n<think>\nWell, ", true));
  EXPECT_FALSE(begins_in_reasoning(think, "assistant\n<think>\nWell.\n</think>\n\nYe", true));
  EXPECT_TRUE(begins_in_reasoning(gemma, "<|turn>model\n<|channel>thought\n", false));
  EXPECT_FALSE(begins_in_reasoning(gemma, "<|turn>model\n<|channel>thought\n<channel|>", false));
  EXPECT_FALSE(begins_in_reasoning({}, "<think>\n", false));
}

// Lines of published templates that matter here.
TEST(Formats, ChosenByTemplate) {
  const HasToken none = [](std::string_view) { return false; };
  const auto chosen = [&](std::string_view text) {
    const OutputFormat format = choose_format(text, none);
    return format.tools + "/" + format.reasoning;
  };
  EXPECT_EQ(chosen(R"({{- "<tool_call>\n{\"name\": <function-name>, \"arguments\": <args>}" }}
                      {%- set reasoning_content = content.split('</think>')[0] %})"),
            "hermes/think");  // Qwen 3
  EXPECT_EQ(chosen(R"({{- '<tool_call>\n<function=' + tool_call.name + '>\n' }}
                      {{- '<parameter=' + args_name + '>\n' }})"),
            "qwen3-coder/none");
  EXPECT_EQ(chosen(R"({{- '{"name": "' + tool_call.name + '", ' }}{{- '"parameters": ' }}
                      {{- '<|start_header_id|>' }})"),
            "llama3/none");
  EXPECT_EQ(chosen(R"({{- '<|tool_call>call:' + function['name'] + '{' -}}<|channel>thought)"),
            "gemma/gemma-channel");
  EXPECT_EQ(chosen(R"({{- '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}[THINK])"),
            "mistral/mistral");
  EXPECT_EQ(chosen(R"({{- '<function name="' ~ name ~ '">' }}{{- '<param name="' }}<think>)"),
            "minicpm/think");
  EXPECT_EQ(chosen(R"(<tool_call>{{ name }}<arg_key>{{ k }}</arg_key> "arguments")"), "none/none");
  EXPECT_EQ(chosen("{{ messages[0].content }}"), "none/none");
  EXPECT_EQ(chosen(""), "none/none");

  const HasToken qwen = [](std::string_view token) {
    return token == "<tool_call>" || token == "<think>";
  };
  EXPECT_EQ(choose_format("", qwen), (OutputFormat{"hermes", "think"}));
  EXPECT_EQ(choose_format("{{ messages }}", qwen), OutputFormat());
}

TEST(Formats, NamesAndMarkers) {
  EXPECT_NO_THROW(require_tool_format("none", "--tool-format"));
  EXPECT_NO_THROW(require_reasoning_format("think", "--reasoning-format"));
  try {
    require_tool_format("qwen", "--tool-format");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.param(), "--tool-format");
    EXPECT_THAT(error.message(), testing::HasSubstr("qwen3-coder"));
  }
  EXPECT_THROW(make_output_parser({.reasoning = "loud"}, nullptr, false), Error);
  EXPECT_THAT(format_markers({"gemma", "gemma-channel"}),
              testing::IsSupersetOf(
                  {"<|tool_call>", "<tool_call|>", "<|\"|>", "<|channel>", "<channel|>"}));
  EXPECT_THAT(format_markers({}), testing::IsEmpty());
}

}  // namespace
}  // namespace mantou::text
