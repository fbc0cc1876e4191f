#include "text/messages.h"

#include <array>
#include <string_view>

#include "base/error.h"
#include "base/json_builder.h"

namespace mantou::text {
namespace {

using nlohmann::ordered_json;

[[noreturn]] void wrong(const std::string& name, std::string_view expected) {
  fail_param(ErrorCode::kInvalidArgument, name, "{}: must be {}", name, expected);
}

std::string item(const std::string& list, size_t index) {
  return fmt::format("{}[{}]", list, index);
}

const ordered_json* find(const ordered_json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// A new member; operator[] would look through all the others first.
void append(ordered_json& object, const std::string& key, const ordered_json& value) {
  object.get_ref<ordered_json::object_t&>().emplace_back(key, value);
}

// A part's text; parts of other kinds are refused by their name.
std::string part_text(const ordered_json& part, const std::string& name) {
  if (part.is_string()) return part.get<std::string>();
  if (!part.is_object()) wrong(name, "an object with \"type\" and \"text\"");
  const ordered_json* type = find(part, "type");
  if (type == nullptr || !type->is_string()) wrong(name + ".type", "a string, such as \"text\"");
  const std::string kind = type->get<std::string>();
  const bool is_text = kind == "text" || kind == "input_text" || kind == "output_text";
  if (!is_text && kind != "refusal")
    fail_param(ErrorCode::kUnsupported, name + ".type",
               "{}.type: parts of type \"{}\" are not supported; only text is", name, kind);
  const char* key = is_text ? "text" : "refusal";
  const ordered_json* text = find(part, key);
  if (text == nullptr || !text->is_string()) wrong(name + "." + key, "a string");
  return text->get<std::string>();
}

std::string content_text(const ordered_json& content, const std::string& name) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) wrong(name, "a string or an array of text parts");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) text += part_text(content[i], item(name, i));
  return text;
}

ordered_json parse_object(const std::string& text, const std::string& name) try {
  return build_json<ordered_json>(text, {kMaxJsonDepth});
} catch (const JsonDefect&) {
  wrong(name, "a JSON object, or the text of one");
}

// Clients send arguments as JSON text, templates print them as objects.
void parse_arguments(ordered_json& function, const std::string& name) {
  const ordered_json* arguments = find(function, "arguments");
  ordered_json parsed = ordered_json::object();
  if (arguments != nullptr && arguments->is_string()) {
    const auto& text = arguments->get_ref<const std::string&>();
    if (!text.empty()) parsed = parse_object(text, name + ".arguments");
  } else if (arguments != nullptr) {
    parsed = *arguments;
  }
  if (!parsed.is_object()) wrong(name + ".arguments", "a JSON object, or the text of one");
  require_depth(parsed, name + ".arguments");
  function["arguments"] = std::move(parsed);
}

void normalize_tool_calls(ordered_json& calls, const std::string& name) {
  if (!calls.is_array()) wrong(name, "an array of tool calls");
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string call = item(name, i);
    if (!calls[i].is_object()) wrong(call, "an object");
    const auto function = calls[i].find("function");
    if (function == calls[i].end() || !function->is_object())
      wrong(call + ".function", "an object");
    const ordered_json* called = find(*function, "name");
    if (called == nullptr || !called->is_string()) wrong(call + ".function.name", "a string");
    parse_arguments(*function, call + ".function");
  }
}

// Reasoning goes by several names; templates read the first or, in gpt-oss, the second. The order
// of the fields is that of transformers.
void alias_reasoning(ordered_json& message, const std::string& name) {
  constexpr std::array kNames = {"reasoning_content", "thinking", "reasoning"};
  for (const char* key : kNames) {
    const ordered_json* reasoning = find(message, key);
    if (reasoning == nullptr) continue;
    if (!reasoning->is_string()) wrong(name + "." + key, "a string");
    ordered_json aliased = {{"thinking", *reasoning}};
    for (const auto& [field, value] : message.items())
      field == "thinking" ? void(aliased[field] = value) : append(aliased, field, value);
    aliased["reasoning_content"] = *reasoning;
    message = std::move(aliased);
    return;
  }
}

ordered_json normalize_message(const ordered_json& given, const std::string& name) {
  if (!given.is_object()) wrong(name, "an object with \"role\" and \"content\"");
  ordered_json message = ordered_json::object();
  for (const auto& [key, value] : given.items())
    if (!value.is_null()) append(message, key, value);

  const ordered_json* role = find(message, "role");
  if (role == nullptr || !role->is_string() || role->get_ref<const std::string&>().empty())
    wrong(name + ".role", "a string, such as \"user\"");
  if (*role == "developer") message["role"] = "system";

  const auto calls = message.find("tool_calls");
  if (calls != message.end()) normalize_tool_calls(*calls, name + ".tool_calls");
  alias_reasoning(message, name);

  const auto content = message.find("content");
  const bool may_lack = message["role"] == "assistant" &&
                        (message.contains("tool_calls") || message.contains("reasoning_content"));
  if (content != message.end())
    *content = content_text(*content, name + ".content");
  else if (!may_lack)
    wrong(name + ".content", "a string or an array of text parts");
  return message;
}

bool deeper_than(const ordered_json& value, int limit) {
  if (!value.is_structured()) return false;
  if (limit == 0) return true;
  for (const ordered_json& inner : value)
    if (deeper_than(inner, limit - 1)) return true;
  return false;
}

}  // namespace

void require_depth(const ordered_json& value, const std::string& name) {
  if (deeper_than(value, kMaxJsonDepth))
    fail_param(ErrorCode::kInvalidArgument, name, "{}: nested deeper than {} levels", name,
               kMaxJsonDepth);
}

ordered_json normalize_messages(const ordered_json& messages) {
  if (!messages.is_array() || messages.empty()) wrong("messages", "a non-empty array");
  ordered_json normalized = ordered_json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string name = item("messages", i);
    require_depth(messages[i], name);
    normalized.push_back(normalize_message(messages[i], name));
  }
  return normalized;
}

}  // namespace mantou::text
