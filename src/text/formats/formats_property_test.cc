// What must hold for any text: how it is cut does not matter, what was written comes out, time is
// linear.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "text/formats/formats_test_support.h"

namespace mantou::text {
namespace {

using Json = nlohmann::ordered_json;
using Kind = OutputEvent::Kind;

const std::vector<OutputFormat>& all_formats() {
  static const std::vector<OutputFormat> formats = {
      {"hermes", "think"},  {"qwen3-coder", "think"},   {"llama3", "none"},
      {"llama3", "think"},  {"gemma", "gemma-channel"}, {"mistral", "mistral"},
      {"minicpm", "think"}, {"none", "gemma-channel"}};
  return formats;
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  size_t below(size_t n) { return engine_() % n; }
  template <class T>
  const T& of(const std::vector<T>& values) {
    return values[below(values.size())];
  }

 private:
  std::mt19937 engine_;
};

// Pieces of every format's markup and of what stands between.
const std::vector<std::string>& pieces() {
  static const std::vector<std::string> pieces = {"<tool_call>",
                                                  "</tool_call>",
                                                  "{\"name\": \"now\", \"arguments\": {",
                                                  "\"name\"",
                                                  "\"now\"",
                                                  "\"arguments\"",
                                                  "\"parameters\"",
                                                  ":",
                                                  ",",
                                                  "{",
                                                  "}",
                                                  "[",
                                                  "]",
                                                  "\"",
                                                  "\\",
                                                  "\\u00e9",
                                                  "\\ud83d",
                                                  "\\ude00",
                                                  "true",
                                                  "-1.5",
                                                  "null",
                                                  "<function=",
                                                  "<function=write_file>",
                                                  ">",
                                                  "<parameter=",
                                                  "<parameter=text>",
                                                  "<parameter=mode>",
                                                  "</parameter>",
                                                  "</function>",
                                                  "<function name=\"",
                                                  "<function name=\"write_file\">",
                                                  "\">",
                                                  "<param name=\"",
                                                  "<param name=\"text\">",
                                                  "<param name=\"tags\">",
                                                  "</param>",
                                                  "<![CDATA[",
                                                  "]]>",
                                                  "&lt;",
                                                  "&#65;",
                                                  "&",
                                                  ";",
                                                  "<|python_tag|>",
                                                  "<|tool_call>",
                                                  "<|tool_call>call:write_file{",
                                                  "call:now{",
                                                  "text:",
                                                  "<|\"|>",
                                                  "<tool_call|>",
                                                  "<start_function_call>",
                                                  "<escape>",
                                                  "<end_function_call>",
                                                  "[TOOL_CALLS]",
                                                  "[TOOL_CALLS]now[ARGS]{",
                                                  "[ARGS]",
                                                  "[CALL_ID]",
                                                  "get_weather",
                                                  "unknown",
                                                  "write_file",
                                                  "<think>",
                                                  "</think>",
                                                  "<|channel>",
                                                  "<|channel>thought\n",
                                                  "<channel|>",
                                                  "[THINK]",
                                                  "[/THINK]",
                                                  "\n",
                                                  " ",
                                                  "\n\n",
                                                  "a",
                                                  "é",
                                                  "words of text",
                                                  "<",
                                                  "</",
                                                  "<t",
                                                  "😀",
                                                  "\t",
                                                  "{\"name\": \"now\"}",
                                                  "{\"arguments\": {}}"};
  return pieces;
}

// Whole calls, and calls that were never meant to be: a random text is likelier to hold both.
const std::vector<std::string>& calls() {
  static const std::vector<std::string> calls = {
      "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>",
      "<tool_call>{\"name\": \"no\", \"arguments\": {}}</tool_call>",
      "<tool_call><function=write_file><parameter=text>a</parameter></function></tool_call>",
      "<tool_call><function=no><parameter=text>a</parameter></function></tool_call>",
      "<function name=\"write_file\"><param name=\"text\"><![CDATA[a]]></param></function>",
      "<function name=\"no\"><param name=\"text\">a</param></function>",
      "{\"name\": \"now\", \"parameters\": {}}",
      "<|tool_call>call:write_file{text:<|\"|>a<|\"|>,mode:1}<tool_call|>",
      "<|tool_call>call:no{}<tool_call|>",
      "[TOOL_CALLS]now[ARGS]{\"a\": 1}",
      "[TOOL_CALLS]no[ARGS]{\"a\": 1}",
      "[TOOL_CALLS][{\"name\": \"no\", \"arguments\": {}}, {\"name\": \"now\"}]"};
  return calls;
}

std::string random_text(Random& random) {
  std::string text;
  const size_t seldom = 2 + random.below(12);
  for (size_t n = 1 + random.below(20); n > 0; --n) {
    const std::string& piece = random.of(random.below(seldom) == 0 ? calls() : pieces());
    // Most pieces whole, some cut.
    text += random.below(8) == 0 ? piece.substr(0, 1 + random.below(piece.size())) : piece;
  }
  return text;
}

// Whatever is emitted is well formed, and with no call and no reasoning it is the text. Where the
// arguments' JSON is written here and not by the model, it is valid.
void check_shape(const ParserSetup& setup, const std::vector<OutputEvent>& events,
                 const std::string& text) {
  int begun = -1;
  bool open = false, marked = false;
  const std::string& tools = setup.format.tools;
  const bool own_json = tools == "qwen3-coder" || tools == "minicpm" || tools == "gemma";
  std::string arguments;
  for (const OutputEvent& event : events) {
    marked = marked || event.kind != Kind::kContent;
    if (event.kind == Kind::kCallBegin) {
      ASSERT_EQ(event.call, ++begun) << text;
      open = true;
    } else if (event.kind == Kind::kCallArguments || event.kind == Kind::kCallEnd) {
      ASSERT_TRUE(open && event.call == begun) << text;
      open = event.kind != Kind::kCallEnd;
      if (open) arguments = event.text;
      ASSERT_TRUE(open || !own_json || Json::accept(arguments)) << arguments << "\n" << text;
    } else {
      ASSERT_EQ(event.call, -1) << text;
      open = false;
    }
  }
  if (!marked && !setup.in_reasoning && text.find("think>") == text.npos &&
      text.find("hannel") == text.npos && text.find("THINK]") == text.npos) {
    ASSERT_EQ(events.empty() ? "" : events[0].text, text);
  }
}

TEST(FormatsProperty, CutsDoNotMatter) {
  Random random(20);
  std::map<Kind, int> seen;
  for (int round = 0; round < 20000; ++round) {
    const ParserSetup setup{.format = random.of(all_formats()),
                            .in_reasoning = random.below(8) == 0};
    const std::string text = random_text(random);
    const auto whole = parse_whole(setup, text);
    check_shape(setup, whole, text);
    ASSERT_EQ(parse_pieces(setup, text, [] { return 1; }), whole) << text;
    ASSERT_EQ(parse_pieces(setup, text, [&] { return 1 + random.below(12); }), whole) << text;
    for (const OutputEvent& event : whole) ++seen[event.kind];
  }
  for (const Kind kind :
       {Kind::kContent, Kind::kReasoning, Kind::kCallBegin, Kind::kCallArguments, Kind::kCallEnd})
    EXPECT_GT(seen[kind], 500);
}

// Calls written as each format's template writes them.

std::string random_string(Random& random, bool markup) {
  std::string out;
  for (size_t n = random.below(6); n > 0; --n)
    out += markup ? random.of(pieces())
                  : random.of<std::string>({"word", " ", "é", "\"", "\\", "\n", "😀", "{", "1"});
  return out;
}

struct Call {
  std::string name;
  Json arguments;
};

Call random_call(Random& random, bool markup) {
  Call call{random.of<std::string>({"write_file", "get_weather", "now"}), Json::object()};
  const std::vector<std::string> texts = call.name == "write_file"
                                             ? std::vector<std::string>{"path", "text"}
                                             : std::vector<std::string>{"city", "note"};
  for (size_t n = random.below(4); n > 0 && call.name != "now"; --n)
    call.arguments[random.of(texts)] = random_string(random, markup);
  if (call.name == "now") return call;
  if (random.below(2) == 0) call.arguments["mode"] = static_cast<int>(random.below(1000)) - 500;
  if (random.below(2) == 0) call.arguments["force"] = random.below(2) == 0;
  if (random.below(3) == 0)
    call.arguments["deep"] = {{"list", {1, random_string(random, markup), nullptr}},
                              {"inner", Json::object()}};
  return call;
}

std::string gemma_value(const Json& value) {
  if (value.is_string()) return "<|\"|>" + value.get<std::string>() + "<|\"|>";
  if (!value.is_structured()) return value.dump();
  std::string out;
  for (const auto& [key, inner] : value.items())
    out += (out.empty() ? "" : ",") + (value.is_object() ? key + ":" : "") + gemma_value(inner);
  return value.is_object() ? "{" + out + "}" : "[" + out + "]";
}

std::string shown(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string written(const std::string& format, const Call& call) {
  std::string out;
  if (format == "hermes") {
    return "<tool_call>\n{\"name\": \"" + call.name +
           "\", \"arguments\": " + call.arguments.dump(1) + "}\n</tool_call>";
  } else if (format == "qwen3-coder") {
    for (const auto& [key, value] : call.arguments.items())
      out += "<parameter=" + key + ">\n" + shown(value) + "\n</parameter>\n";
    return "<tool_call>\n<function=" + call.name + ">\n" + out + "</function>\n</tool_call>";
  } else if (format == "minicpm") {
    for (const auto& [key, value] : call.arguments.items()) {
      const std::string text = shown(value);
      const bool cdata = value.is_string() && text.find_first_of("<&\n") != text.npos;
      out +=
          "<param name=\"" + key + "\">" + (cdata ? "<![CDATA[" + text + "]]>" : text) + "</param>";
    }
    return "<function name=\"" + call.name + "\">" + out + "</function>";
  } else if (format == "gemma") {
    return "<|tool_call>call:" + call.name + gemma_value(call.arguments) + "<tool_call|>";
  } else if (format == "mistral") {
    return "[TOOL_CALLS]" + call.name + "[ARGS]" + call.arguments.dump();
  }
  return "{\"name\": \"" + call.name + "\", \"parameters\": " + call.arguments.dump() + "}";
}

TEST(FormatsProperty, WhatWasWrittenComesOut) {
  Random random(21);
  for (int round = 0; round < 4000; ++round) {
    const OutputFormat format = random.of(all_formats());
    if (format.tools == "none") continue;
    // Values of these are not escaped: markup within them may be ambiguous.
    const bool markup =
        format.tools == "hermes" || format.tools == "llama3" || format.tools == "mistral";
    const bool alone = format.tools == "llama3";  // a call is the whole answer
    std::string text = alone ? "" : random.of<std::string>({"", "Text.\n\n", "1 < 2 "});
    const std::string content = text;
    std::vector<Call> calls;
    for (size_t n = 1 + random.below(4); n > 0; --n) {
      calls.push_back(random_call(random, markup));
      text += written(format.tools, calls.back()) +
              random.of<std::string>({alone ? "; " : "", "\n", "\n\n", " "});
    }
    const auto events =
        parse_pieces({.format = format}, text, [&] { return 1 + random.below(12); });
    std::string said;
    std::vector<Call> found;
    for (const OutputEvent& event : events) {
      if (event.kind == Kind::kContent) said += event.text;
      if (event.kind == Kind::kCallBegin) found.push_back({event.text, {}});
      if (event.kind != Kind::kCallArguments) continue;
      found.back().arguments = Json::parse(event.text, nullptr, false);
      ASSERT_EQ(found.back().arguments.dump(), event.text) << text;  // compact
    }
    ASSERT_EQ(said, content) << text;
    ASSERT_EQ(found.size(), calls.size()) << text;
    for (size_t i = 0; i < calls.size(); ++i) {
      ASSERT_EQ(found[i].name, calls[i].name) << text;
      ASSERT_EQ(found[i].arguments, calls[i].arguments) << text;
    }
  }
}

// A megabyte a byte at a time: done at once where time is linear, in hours where it is not. A value
// that streams is never more than a few bytes behind.
TEST(FormatsProperty, LongValuesStream) {
  struct Value {
    std::string tools, before, unit;
  };
  for (const Value& value : std::vector<Value>{
           {"hermes", R"(<tool_call>{"name":"write_file","arguments":{"text":")",
            "a\\n<tool_call>"},
           {"qwen3-coder", "<tool_call><function=write_file><parameter=text>", "</parameter>x"},
           {"minicpm", "<function name=\"write_file\"><param name=\"text\"><![CDATA[", "]]></para"},
           {"gemma", "<|tool_call>call:write_file{text:<|\"|>", "<|\"<|tool_call>"},
           {"mistral", R"([TOOL_CALLS]write_file[ARGS]{"text":")", "[TOOL_CALLS]"},
           {"llama3", R"({"name":"write_file","parameters":{"text":")", "a;{}"}}) {
    const auto parser = make_output_parser({.tools = value.tools}, test_tools(), false);
    std::vector<OutputEvent> events;
    parser->push(value.before, events);
    size_t pushed = 0, emitted = 0;
    while (pushed < 1000000)
      for (const char c : value.unit) {
        events.clear();
        parser->push(std::string_view(&c, 1), events);
        ++pushed;
        for (const OutputEvent& event : events) {
          ASSERT_EQ(event.kind, Kind::kCallArguments);
          emitted += event.text.size();
        }
        ASSERT_LE(pushed, emitted + 32) << value.tools;
      }
  }
}

TEST(FormatsProperty, TimeIsLinear) {
  const std::vector<std::string> units = {
      "<tool_call>",
      "<tool_call>{",
      "<tool_call>{\"name\":\"",
      "{\"arguments\":{\"a\":\"",
      "\n",
      "<tool_call>\n<function=no><parameter=text></parameter>\n",
      "<function=now><tool_call>",
      "</parameter>\n",
      "<function name=\"now\"><param name=\"tags\"><![CDATA[]]>\n",
      "]]>\n",
      "&",
      "<|tool_call>call:now{a:[",
      "<|tool_call>call:no{a:<|\"|",
      "[TOOL_CALLS]",
      "[TOOL_CALLS][{",
      "[TOOL_CALLS]no[ARGS]{\"a\":1}",
      "<think>",
      "<think>\n</think>",
      "<|channel>",
      "\\ud83d",
      "["};
  const size_t kBytes = 200000;
  for (const OutputFormat& format : all_formats())
    for (const std::string& unit : units) {
      std::string text;
      while (text.size() < kBytes) text += unit;
      size_t bytes = 0;
      for (const OutputEvent& event : parse_whole({.format = format}, text))
        bytes += event.text.size();
      EXPECT_LE(bytes, 7 * text.size());  // nothing comes out twice; \u0000 makes 6 of 1
    }
}

}  // namespace
}  // namespace mantou::text
