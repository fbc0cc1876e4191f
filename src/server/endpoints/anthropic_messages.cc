#include "server/endpoints/anthropic_messages.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "server/generation_fields.h"

namespace mantou::server {
namespace {

void append_block(std::string& text, std::string_view more) {
  if (!text.empty() && !more.empty()) text += '\n';
  text += more;
}

std::string required(const Fields& fields, std::string_view name) {
  std::string value;
  if (!fields.read(name, value))
    fail_param(ErrorCode::kInvalidArgument, fields.path_of(name), "'{}' is required",
               fields.path_of(name));
  return value;
}

// What tools that run at Anthropic's left behind, and what only its models can read.
bool is_elsewhere(std::string_view type) {
  return type == "redacted_thinking" || type == "server_tool_use" || type == "mcp_tool_use" ||
         type == "tool_reference" || type.ends_with("_tool_result");
}

[[noreturn]] void refuse_block(const Fields& block, std::string_view type) {
  const std::string path = block.path_of("type");
  fail_param(ErrorCode::kUnsupported, path,
             "'{}': blocks of type \"{}\" are not supported here; the model reads only text", path,
             type);
}

// Calls `read(fields, type)` for each block; a string is one block of text.
template <class ReadText, class ReadBlock>
void for_each_block(const Json& content, const std::string& path, ReadText read_text,
                    ReadBlock read_block) {
  if (content.is_string()) return read_text(content.get<std::string>());
  if (!content.is_array()) Fields::wrong(path, "a string or an array of blocks", content);
  for (size_t i = 0; i < content.size(); ++i) {
    const Fields block(content[i], fmt::format("{}[{}]", path, i));
    const std::string type = required(block, "type");
    if (type == "text")
      read_text(required(block, "text"));
    else if (!is_elsewhere(type))
      read_block(block, type);
  }
}

// Claude Code puts a line that differs with each request in front of its system prompt, where it
// would keep the rest from being found in the prefix cache.
bool is_billing_line(std::string_view text) {
  return text.starts_with("x-anthropic-billing-header:");
}

std::string system_text(const Json& system) {
  std::string text;
  for_each_block(
      system, "system",
      [&](const std::string& block) {
        if (!text.empty() || !is_billing_line(block)) append_block(text, block);
      },
      refuse_block);
  return text;
}

class Conversation {
 public:
  void add_system(std::string_view text) { append_block(system_, text); }

  // Messages of a system amid the others are folded into the user's turns: few templates know them
  // anywhere but in front.
  void add(const Fields& message, const std::string& role) {
    const Json* content = message.find("content");
    const std::string path = message.path_of("content");
    if (content == nullptr) Fields::wrong(path, "a string or an array of blocks", nullptr);
    if (role == "system" && role_.empty()) {
      for_each_block(
          *content, path, [&](const std::string& text) { add_system(text); }, refuse_block);
      return;
    }
    const std::string_view turn = role == "assistant" ? "assistant" : "user";
    if (turn != role_) flush();
    role_ = turn;
    for_each_block(
        *content, path, [&](const std::string& text) { append_block(turn_.text, text); },
        [&](const Fields& block, const std::string& type) { add_block(block, type); });
  }

  Json take() {
    flush();
    if (messages_.empty())
      fail_param(ErrorCode::kInvalidArgument, "messages", "'messages' holds nothing to answer");
    if (messages_.back().contains("tool_calls"))
      fail_param(ErrorCode::kInvalidArgument, "messages",
                 "'messages' ends with a call of a tool: a message with its tool_result must "
                 "follow");
    if (!system_.empty())
      messages_.insert(messages_.begin(), Json{{"role", "system"}, {"content", system_}});
    return std::move(messages_);
  }

 private:
  struct Turn {
    std::string text, thinking;
    Json calls = Json::array(), results = Json::array();
  };

  void add_block(const Fields& block, const std::string& type) {
    const bool assistant = role_ == "assistant";
    if (type == "thinking" && assistant)
      append_block(turn_.thinking, required(block, "thinking"));
    else if (type == "tool_use" && assistant)
      add_call(block);
    else if (type == "tool_result" && !assistant)
      add_result(block);
    else
      refuse_block(block, type);
  }

  void add_call(const Fields& block) {
    const std::string id = required(block, "id"), name = required(block, "name");
    const Json* input = block.find("input");
    if (input == nullptr || !input->is_object())
      Fields::wrong(block.path_of("input"), "an object", input == nullptr ? Json() : *input);
    turn_.calls.push_back(
        {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", *input}}}});
    tools_[id] = name;
  }

  void add_result(const Fields& block) {
    const std::string id = required(block, "tool_use_id");
    bool is_error = false;
    block.read("is_error", is_error);
    std::string text = is_error ? "Error: " : "";
    std::string said;
    if (const Json* content = block.find("content"))
      for_each_block(
          *content, block.path_of("content"),
          [&](const std::string& more) { append_block(said, more); }, refuse_block);
    Json result = {{"role", "tool"}, {"tool_call_id", id}, {"content", text + said}};
    if (const auto tool = tools_.find(id); tool != tools_.end()) result["name"] = tool->second;
    turn_.results.push_back(std::move(result));
  }

  // An empty turn of the assistant's says nothing and is left out.
  void flush() {
    Turn turn = std::exchange(turn_, {});
    if (role_ == "assistant") {
      if (turn.text.empty() && turn.calls.empty()) return;
      Json message = {{"role", role_}};
      if (!turn.text.empty()) message["content"] = turn.text;
      if (!turn.thinking.empty()) message["reasoning_content"] = turn.thinking;
      if (!turn.calls.empty()) message["tool_calls"] = std::move(turn.calls);
      messages_.push_back(std::move(message));
    } else if (!role_.empty()) {
      for (Json& result : turn.results) messages_.push_back(std::move(result));
      if (!turn.text.empty() || turn.results.empty())
        messages_.push_back({{"role", role_}, {"content", turn.text}});
    }
  }

  std::string system_;
  std::string role_;  // of the turn that is being put together; empty: there is none yet
  Turn turn_;
  std::map<std::string, std::string> tools_;  // names of the calls so far, by id
  Json messages_ = Json::array();
};

}  // namespace

Json openai_messages(const Fields& fields) {
  Conversation conversation;
  if (const Json* system = fields.find("system")) conversation.add_system(system_text(*system));
  const Json& messages = read_messages(fields);
  for (size_t i = 0; i < messages.size(); ++i) {
    const Fields message(messages[i], fmt::format("messages[{}]", i));
    const std::string role = required(message, "role");
    if (role != "user" && role != "assistant" && role != "system")
      Fields::wrong(message.path_of("role"), "user, assistant or system", role);
    conversation.add(message, role);
  }
  return conversation.take();
}

}  // namespace mantou::server
