#include "server/tool_fields.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/formats/tool_catalog.h"

namespace mantou::server {
namespace {

// {"type": "function", "function": {"name": …}}.
std::string function_named(const Json& value, const std::string& path) {
  const Fields entry(value, path);
  const Json* function = entry.find("function");
  std::string name;
  if (function == nullptr || !Fields(*function, entry.path_of("function")).read("name", name))
    fail_param(ErrorCode::kInvalidArgument, path,
               "'{}' must be {{\"type\": \"function\", \"function\": {{\"name\": …}}}}", path);
  return name;
}

void check_tool(const Json& tool, const std::string& path, ToolNames& names) {
  const Fields fields(tool, path);
  std::string type = "function";
  fields.read("type", type);
  if (type != "function")
    fail_param(ErrorCode::kUnsupported, fields.path_of("type"),
               "'{}' must be function: tools of type {} are not supported", fields.path_of("type"),
               shortened(type));
  const Json* function = fields.find("function");
  const Json nothing = Json::object();
  names.read(Fields(function == nullptr ? nothing : *function, fields.path_of("function")));
}

// {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required", "tools": […]}}.
void read_allowed_tools(const Fields& choice, const Json& tools, ChatRequest& request) {
  const Json* allowed = choice.find("allowed_tools");
  if (allowed == nullptr)
    fail_param(ErrorCode::kInvalidArgument, "tool_choice.allowed_tools",
               "'tool_choice.allowed_tools' is required");
  const Fields inner(*allowed, "tool_choice.allowed_tools");
  std::string mode = "auto";
  inner.read("mode", mode);
  if (mode != "auto" && mode != "required")
    Fields::wrong("tool_choice.allowed_tools.mode", "auto or required", mode);
  const Json* list = inner.find("tools");
  if (list == nullptr || !list->is_array() || list->empty())
    fail_param(ErrorCode::kInvalidArgument, "tool_choice.allowed_tools.tools",
               "'tool_choice.allowed_tools.tools' must name at least one tool");
  std::vector<std::string> names;
  for (size_t i = 0; i < list->size(); i++)
    names.push_back(
        function_named((*list)[i], fmt::format("tool_choice.allowed_tools.tools[{}]", i)));
  request.callable_tools = tools_named(tools, names, "tool_choice.allowed_tools.tools");
  request.must_call = mode == "required";
}

// {"type": "auto"} says the same as "auto", and so on; some clients and Mistral's API say "any".
const Json& mode_of(const Json& choice) {
  return choice.is_object() && choice.size() == 1 && choice.contains("type") ? choice["type"]
                                                                             : choice;
}

void read_tool_choice(const Fields& fields, const Json& tools, ChatRequest& request) {
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  const Json& mode = mode_of(*choice);
  if (mode == "auto") return;
  if (mode == "none") {
    request.chat.tools = nullptr;
    return;
  }
  if (tools.empty())
    fail_param(ErrorCode::kInvalidArgument, "tool_choice",
               "'tool_choice' asks for a call, but there are no 'tools'");
  if (mode == "required" || mode == "any") {
    request.must_call = true;
    return;
  }
  if (!choice->is_object())
    Fields::wrong("tool_choice", "auto, none, required or an object that names tools", *choice);
  const Fields object(*choice, "tool_choice");
  std::string type = "function";
  object.read("type", type);
  if (type == "allowed_tools") return read_allowed_tools(object, tools, request);
  if (type != "function") Fields::wrong("tool_choice.type", "function or allowed_tools", type);
  request.callable_tools =
      tools_named(tools, {function_named(*choice, "tool_choice")}, "tool_choice.function.name");
  request.must_call = true;
  request.generation.one_call = true;
}

}  // namespace

std::string ToolNames::read(const Fields& fields) {
  const Json* given = fields.find("name");
  if (given == nullptr || !given->is_string() || given->get_ref<const std::string&>().empty())
    Fields::wrong(fields.path_of("name"), "a string that is not empty",
                  given == nullptr ? Json() : *given);
  std::string name = given->get<std::string>();
  if (!seen_.insert(name).second)
    fail_param(ErrorCode::kInvalidArgument, fields.path_of("name"),
               "'{}': an earlier tool is called {}, too; names must differ", fields.path_of("name"),
               shortened(name));
  return name;
}

Json tools_named(const Json& tools, const std::vector<std::string>& names, const char* field) {
  Json found = Json::array();
  for (const std::string& name : names) {
    const auto at = std::find_if(tools.begin(), tools.end(), [&](const Json& tool) {
      const Json* function = text::function_of(tool);
      return function != nullptr && function->at("name") == name;
    });
    if (at == tools.end())
      fail_param(ErrorCode::kInvalidArgument, field, "'{}' names \"{}\", which is none of 'tools'",
                 field, name);
    found.push_back(*at);
  }
  return found;
}

void read_tools(const Fields& fields, ChatRequest& request) {
  Json tools = Json::array();
  if (const Json* given = fields.find("tools")) {
    if (!given->is_array()) Fields::wrong("tools", "an array of tools", *given);
    tools = *given;
  }
  ToolNames names;
  for (size_t i = 0; i < tools.size(); ++i)
    check_tool(tools[i], fmt::format("tools[{}]", i), names);
  if (!tools.empty()) request.chat.tools = tools;
  bool parallel = true;
  fields.read("parallel_tool_calls", parallel);
  request.generation.one_call = !parallel;
  read_tool_choice(fields, tools, request);
}

}  // namespace mantou::server
