#include "server/endpoints/anthropic_request.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "server/endpoints/anthropic_messages.h"
#include "server/tool_fields.h"

namespace mantou::server {
namespace {

// OpenAI's tool, whose fields templates print; null: a tool that runs at Anthropic's.
Json openai_tool(const Json& tool, const std::string& path, ToolNames& names) {
  const Fields fields(tool, path);
  std::string type = "custom", description;
  fields.read("type", type);
  if (type != "custom") return nullptr;
  const std::string name = names.read(fields);
  const Json* schema = fields.find("input_schema");
  if (schema == nullptr || !schema->is_object())
    Fields::wrong(fields.path_of("input_schema"), "a JSON schema",
                  schema == nullptr ? Json() : *schema);
  Json function = {{"name", name}};
  if (fields.read("description", description)) function["description"] = description;
  function["parameters"] = *schema;
  return {{"type", "function"}, {"function", std::move(function)}};
}

// Of chat.chat.tools.
void read_tool_choice(const Fields& fields, ChatRequest& chat) {
  const Json* value = fields.find("tool_choice");
  if (value == nullptr) return;
  const Fields choice(*value, "tool_choice");
  std::string type, name;
  choice.read("type", type);
  choice.read("disable_parallel_tool_use", chat.generation.one_call);
  if (type == "none") chat.chat.tools = nullptr;
  if (type == "none" || type == "auto") return;
  if (type != "any" && type != "tool")
    Fields::wrong("tool_choice.type", "auto, any, tool or none", type);
  if (chat.chat.tools.is_null())
    fail_param(ErrorCode::kInvalidArgument, "tool_choice",
               "'tool_choice' asks for a call, but there are no 'tools'");
  chat.must_call = true;
  if (type == "any") return;
  if (!choice.read("name", name))
    fail_param(ErrorCode::kInvalidArgument, "tool_choice.name", "'tool_choice.name' is required");
  chat.callable_tools = tools_named(chat.chat.tools, {name}, "tool_choice.name");
  chat.generation.one_call = true;
}

void translate_tools(const Fields& fields, ChatRequest& chat) {
  Json translated = Json::array();
  if (const Json* tools = fields.find("tools")) {
    if (!tools->is_array()) Fields::wrong("tools", "an array of tools", *tools);
    ToolNames names;
    for (size_t i = 0; i < tools->size(); ++i)
      if (Json tool = openai_tool((*tools)[i], fmt::format("tools[{}]", i), names); !tool.is_null())
        translated.push_back(std::move(tool));
  }
  if (!translated.empty()) chat.chat.tools = std::move(translated);
  read_tool_choice(fields, chat);
}

// A budget is a wish: no template and no model here counts what it thinks.
void read_thinking(const Fields& fields, MessagesRequest& request) {
  const Json* value = fields.find("thinking");
  if (value == nullptr) return;
  const Fields thinking(*value, "thinking");
  std::string type, display;
  int64_t budget = 0;
  thinking.read("type", type);
  if (type != "enabled" && type != "disabled" && type != "adaptive")
    Fields::wrong("thinking.type", "enabled, disabled or adaptive", type);
  thinking.read("budget_tokens", budget, 1, Fields::kMaxInt);
  request.chat.chat.extra["enable_thinking"] = type != "disabled";
  thinking.read("display", display);
  request.omits_thinking = display == "omitted";
}

void read_output_format(const Json& value, const std::string& path, GenerationFields& out) {
  const Fields format(value, path);
  std::string type;
  format.read("type", type);
  if (type != "json_schema") Fields::wrong(format.path_of("type"), "json_schema", type);
  const std::string name = format.path_of("schema");
  const Json* schema = format.find("schema");
  if (schema == nullptr || !schema->is_object())
    Fields::wrong(name, "a JSON schema", schema == nullptr ? Json() : *schema);
  text::GrammarSource source;
  source.kind = text::GrammarKind::kJsonSchema;
  source.text = to_text(*schema);
  add_grammar({std::move(source), name}, out.grammar);
}

void read_output_config(const Fields& fields, ChatRequest& chat) {
  if (const Json* format = fields.find("output_format"))  // where betas of the API had it
    read_output_format(*format, "output_format", chat.generation);
  const Json* value = fields.find("output_config");
  if (value == nullptr) return;
  const Fields config(*value, "output_config");
  std::string effort;
  if (config.read("effort", effort)) {
    constexpr std::pair<std::string_view, std::string_view> kEfforts[] = {{"low", "low"},
                                                                          {"medium", "medium"},
                                                                          {"high", "high"},
                                                                          {"xhigh", "xhigh"},
                                                                          {"max", "xhigh"}};
    const auto* known = std::find_if(std::begin(kEfforts), std::end(kEfforts),
                                     [&](const auto& pair) { return pair.first == effort; });
    if (known == std::end(kEfforts))
      Fields::wrong("output_config.effort", "low, medium, high, xhigh or max", effort);
    chat.chat.extra["reasoning_effort"] = known->second;
  }
  if (const Json* format = config.find("format"))
    read_output_format(*format, "output_config.format", chat.generation);
}

void refuse_what_runs_elsewhere(const Fields& fields) {
  const Json* servers = fields.find("mcp_servers");
  if (servers != nullptr && !servers->empty())
    fail_param(ErrorCode::kUnsupported, "mcp_servers",
               "'mcp_servers' is not supported: call their tools yourself");
}

}  // namespace

MessagesRequest parse_messages_request(std::string_view body, const RequestDefaults& defaults,
                                       int vocab_size, MaxTokens max_tokens) {
  const Json parsed = parse_json(body);
  const Fields fields(parsed);
  MessagesRequest request;
  ChatRequest& chat = request.chat;
  int limit = 0;  // no -1 here, which elsewhere is none
  if (!fields.read("max_tokens", limit, 1, INT_MAX) && max_tokens == MaxTokens::kRequired)
    fail_param(ErrorCode::kInvalidArgument, "max_tokens", "'max_tokens' is required");
  refuse_what_runs_elsewhere(fields);
  chat.messages = openai_messages(fields);
  chat.chat.extra = defaults.template_kwargs;
  chat.chat.continue_final_message = chat.messages.back()["role"] == "assistant";
  chat.chat.add_generation_prompt = !chat.chat.continue_final_message;
  chat.generation = read_generation_fields(fields, defaults, vocab_size);
  if (chat.generation.choices != 1)
    fail_param(ErrorCode::kUnsupported, "n", "'n' must be 1: there is one message");
  fields.read_strings("stop_sequences", chat.generation.stop, kMaxStops);
  translate_tools(fields, chat);
  read_thinking(fields, request);
  read_output_config(fields, chat);
  return request;
}

}  // namespace mantou::server
