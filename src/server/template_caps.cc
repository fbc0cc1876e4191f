#include "server/template_caps.h"

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace mantou::server {
namespace {

Json message(const char* role, const char* content) {
  return {{"role", role}, {"content", content}};
}

Json call(const char* name) {
  return {{"id", "call00000"},
          {"type", "function"},
          {"function", {{"name", name}, {"arguments", "{\"key\": \"value\"}"}}}};
}

// Whether the template writes each of `words` of such messages; a template that refuses them does
// not know them.
bool writes(const text::ChatTemplate& chat_template, const Json& messages,
            const text::ChatOptions& options, std::initializer_list<std::string_view> words) try {
  const std::string text = chat_template.render_text(messages, options);
  for (const std::string_view word : words)
    if (text.find(word) == std::string::npos) return false;
  return true;
} catch (const Error&) {
  return false;
}

}  // namespace

Json template_caps(const text::ChatTemplate& chat_template) {
  const Json user = message("user", "QUESTION");
  const auto with_calls = [&](Json calls) {
    Json said = message("assistant", "");
    said["tool_calls"] = std::move(calls);
    return Json::array({user, std::move(said)});
  };
  text::ChatOptions tools;
  tools.tools =
      Json::array({{{"type", "function"},
                    {"function",
                     {{"name", "TOOL_A"},
                      {"description", "A tool."},
                      {"parameters", {{"type", "object"}, {"properties", Json::object()}}}}}}});
  Json thought = message("assistant", "ANSWER");
  thought["reasoning_content"] = "THOUGHT";
  text::ChatOptions effort;
  effort.extra = {{"reasoning_effort", "EFFORT"}};
  const Json both = with_calls(Json::array({call("TOOL_A"), call("TOOL_B")}));
  const auto can = [&](const Json& messages, const text::ChatOptions& options,
                       std::initializer_list<std::string_view> words) {
    return writes(chat_template, messages, options, words);
  };
  return {
      {"supports_string_content", can(Json::array({user}), {}, {"QUESTION"})},
      {"supports_system_role", can(Json::array({message("system", "RULE"), user}), {}, {"RULE"})},
      {"supports_tools", can(Json::array({user}), tools, {"TOOL_A"})},
      {"supports_tool_calls", can(with_calls(Json::array({call("TOOL_A")})), {}, {"TOOL_A"})},
      {"supports_parallel_tool_calls", can(both, {}, {"TOOL_A", "TOOL_B"})},
      {"supports_preserve_reasoning", can(Json::array({user, thought, user}), {}, {"THOUGHT"})},
      {"supports_reasoning_effort", can(Json::array({user}), effort, {"EFFORT"})}};
}

}  // namespace mantou::server
