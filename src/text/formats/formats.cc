#include "text/formats/formats.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "text/formats/gemma_calls.h"
#include "text/formats/json_calls.h"
#include "text/formats/mistral_calls.h"
#include "text/formats/output_splitter.h"
#include "text/formats/tagged_calls.h"
#include "text/strip.h"

namespace mantou::text {
namespace {

using Texts = std::vector<std::string_view>;

// How a template gives a format away: one of `any`, all of `all`, none of `no`. `token`: how a
// vocabulary does, where there is no template; "": it does not.
struct Signs {
  Texts any, all, no;
  std::string_view token;

  bool in(std::string_view text) const {
    const auto has = [&](std::string_view sign) { return text.find(sign) != text.npos; };
    return std::ranges::any_of(any, has) && std::ranges::all_of(all, has) &&
           std::ranges::none_of(no, has);
  }
};

struct ToolFormat {
  std::string_view name;
  Signs signs;
  std::vector<CallOpener> openers;
  Texts markers;
  MakeCallParser make;
};

struct ReasoningFormat {
  std::string_view name;
  Signs signs;
  ReasoningSyntax syntax;
  std::string_view prompt_name;  // a channel's name as prompts write it after `open`
};

// In the order in which they are looked for: what is told by less comes later.
const std::vector<ToolFormat>& tool_formats() {
  static const std::vector<ToolFormat> formats = {
      {.name = "gemma",
       .signs = {{"<|tool_call>", "<start_function_call>"}, {}, {}, "<|tool_call>"},
       .openers = {{"<|tool_call>"}, {"<start_function_call>"}},
       .markers = {"<|tool_call>", "<tool_call|>", "<|\"|>", "<start_function_call>",
                   "<end_function_call>", "<escape>"},
       .make = GemmaCalls::make},
      {.name = "mistral",
       .signs = {{"[TOOL_CALLS]"}, {}, {}, "[TOOL_CALLS]"},
       .openers = {{"[TOOL_CALLS]"}},
       .markers = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
       .make = MistralCalls::make},
      {.name = "minicpm",
       .signs = {{"<function name="}, {"<param name="}, {}, ""},
       .openers = {{"<function name=\""}},
       .markers = {"<function", "</function>", "<param", "</param>"},
       .make = TaggedCalls::minicpm},
      {.name = "qwen3-coder",
       .signs = {{"<function="}, {"<parameter=", "<tool_call>"}, {}, ""},
       .openers = {{"<tool_call>"}, {"<function="}},
       .markers = {"<tool_call>", "</tool_call>"},
       .make = TaggedCalls::qwen},
      // GLM and its like put <arg_key> into <tool_call>.
      {.name = "hermes",
       .signs = {{"<tool_call>"},
                 {"\"arguments"},
                 {"<arg_key>", "<function=", "<tool_calls>"},
                 "<tool_call>"},
       .openers = {{"<tool_call>"}},
       .markers = {"<tool_call>", "</tool_call>"},
       .make = JsonCalls::hermes},
      {.name = "llama3",
       .signs = {{"<|start_header_id|>"}, {"\"parameters\": "}, {"<function="}, "<|python_tag|>"},
       .openers = {{"<|python_tag|>"}, {"{", true}, {"[", true}},
       .markers = {"<|python_tag|>"},
       .make = JsonCalls::llama3},
  };
  return formats;
}

const std::vector<ReasoningFormat>& reasoning_formats() {
  static const std::vector<ReasoningFormat> formats = {
      {.name = "gemma-channel",
       .signs = {{"<|channel>"}, {}, {}, "<|channel>"},
       .syntax = {.open = "<|channel>", .close = "<channel|>", .named = true, .anywhere = true},
       .prompt_name = "thought"},
      {.name = "mistral",
       .signs = {{"[THINK]"}, {}, {}, "[THINK]"},
       .syntax = {.open = "[THINK]", .close = "[/THINK]", .named = false, .anywhere = true},
       .prompt_name = ""},
      {.name = "think",
       .signs = {{"<think>", "</think>"}, {}, {}, "<think>"},
       .syntax = {.open = "<think>", .close = "</think>", .named = false, .anywhere = false},
       .prompt_name = ""},
  };
  return formats;
}

template <class Format>
std::string choose(const std::vector<Format>& formats, std::string_view text,
                   const HasToken& has_token) {
  for (const Format& format : formats) {
    const std::string_view token = format.signs.token;
    if (text.empty() ? !token.empty() && has_token(token) : format.signs.in(text))
      return std::string(format.name);
  }
  return "none";
}

// nullptr for "none".
template <class Format>
const Format* find(const std::vector<Format>& formats, const std::string& name,
                   const std::string& param) {
  if (name == "none") return nullptr;
  const auto found = std::ranges::find(formats, name, &Format::name);
  if (found != formats.end()) return &*found;
  Texts names = {"none"};
  for (const Format& format : formats) names.push_back(format.name);
  fail_param(ErrorCode::kInvalidArgument, param, "{}: no format \"{}\"; there are {}", param, name,
             fmt::join(names, ", "));
}

const ToolFormat* tools_of(const OutputFormat& format) {
  return find(tool_formats(), format.tools, "tool format");
}

const ReasoningFormat* reasoning_of(const OutputFormat& format) {
  return find(reasoning_formats(), format.reasoning, "reasoning format");
}

}  // namespace

OutputFormat choose_format(std::string_view chat_template, const HasToken& has_token) {
  return {.tools = choose(tool_formats(), chat_template, has_token),
          .reasoning = choose(reasoning_formats(), chat_template, has_token)};
}

void require_tool_format(const std::string& name, const std::string& param) {
  find(tool_formats(), name, param);
}

void require_reasoning_format(const std::string& name, const std::string& param) {
  find(reasoning_formats(), name, param);
}

std::vector<std::string_view> format_markers(const OutputFormat& format) {
  Texts markers;
  if (const ToolFormat* tools = tools_of(format)) markers = tools->markers;
  if (const ReasoningFormat* reasoning = reasoning_of(format)) {
    markers.push_back(reasoning->syntax.open);
    markers.push_back(reasoning->syntax.close);
  }
  return markers;
}

bool begins_in_reasoning(const OutputFormat& format, std::string_view prompt, bool continues) {
  const ReasoningFormat* reasoning = reasoning_of(format);
  if (reasoning == nullptr) return false;
  const size_t open = prompt.rfind(reasoning->syntax.open);
  if (open == prompt.npos) return false;
  const std::string_view rest = prompt.substr(open + reasoning->syntax.open.size());
  if (continues) return rest.find(reasoning->syntax.close) == rest.npos;
  return strip(rest).empty() || strip(rest) == reasoning->prompt_name;
}

std::string_view reasoning_end(const OutputFormat& format) {
  const ReasoningFormat* reasoning = reasoning_of(format);
  return reasoning ? std::string_view(reasoning->syntax.close) : std::string_view();
}

std::unique_ptr<OutputParser> make_output_parser(const OutputFormat& format,
                                                 const nlohmann::ordered_json& tools,
                                                 bool in_reasoning) {
  OutputSplitter::Rules rules;
  if (const ReasoningFormat* reasoning = reasoning_of(format)) {
    rules.reasoning = &reasoning->syntax;
    rules.inside_reasoning = in_reasoning;
  }
  ToolCatalog catalog(tools);
  const ToolFormat* calls = tools_of(format);
  if (calls != nullptr && !catalog.empty()) {
    rules.openers = calls->openers;
    rules.make_calls = calls->make;
  }
  return std::make_unique<OutputSplitter>(rules, std::move(catalog));
}

}  // namespace mantou::text
