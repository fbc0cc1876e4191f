#include "text/chat_template.h"

#include <array>

#include "base/error.h"
#include "base/json.h"
#include "text/bridge_handle.h"
#include "text/messages.h"
#include "text/special_marks.h"
#include "text/strip.h"

namespace mantou::text {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kChatMl =
    "{%- for message in messages -%}\n"
    "  {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "  {{- '<|im_start|>assistant\\n' -}}\n"
    "{%- endif -%}\n";

// Stands behind the message to continue while it is rendered, as in transformers.
constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";

// Roles whose words come from outside: special tokens in them are text.
constexpr std::array<std::string_view, 4> kOutsideRoles = {"user", "tool", "function", "ipython"};

// Variables that callers cannot replace.
constexpr std::array<std::string_view, 2> kReserved = {"messages", "tools"};

class BridgedTemplate final : public ChatTemplate {
 public:
  BridgedTemplate(const TokenizerSource& source, std::shared_ptr<const Tokenizer> tokenizer)
      : origin_(source.origin), tokenizer_(std::move(tokenizer)), marks_(*tokenizer_) {
    const auto named = source.named_templates.find("default");
    std::string_view text = source.chat_template;
    if (text.empty() && named != source.named_templates.end()) text = named->second;
    is_fallback_ = text.empty();
    source_ = is_fallback_ ? kChatMl : text;
    default_ = compile(source_, "chat_template");
    const auto tool_use = source.named_templates.find("tool_use");
    if (tool_use != source.named_templates.end())
      tool_use_ = compile(tool_use->second, "chat_template \"tool_use\"");
    constants_ = ordered_json::object();
    const auto constant = [&](const char* name, const std::string& value) {
      if (!value.empty()) constants_[name] = value;
    };
    constant("bos_token", source.bos_token);
    constant("eos_token", source.eos_token);
    constant("unk_token", source.unk_token);
    constant("pad_token", source.pad_token);
  }

  bool is_fallback() const override { return is_fallback_; }
  std::string_view source() const override { return source_; }

  ChatPrompt render(const ordered_json& given, const ChatOptions& options) const override {
    ChatPrompt prompt = write(given, options);
    prompt.ids = tokenizer_->encode(
        prompt.text, {.add_special = true, .add_eos = false, .literal = prompt.literal});
    return prompt;
  }
  std::string render_text(const ordered_json& given, const ChatOptions& options) const override {
    return write(given, options).text;
  }

 private:
  // All but the ids.
  ChatPrompt write(const ordered_json& given, const ChatOptions& options) const {
    ordered_json messages = normalize_messages(given);
    ordered_json context = variables(options);
    const std::string mark = SpecialMarks::choose(to_text(messages) + to_text(context));
    mark_outside_text(messages, mark);
    const std::string continued = options.continue_final_message ? tag_final(messages) : "";
    context["messages"] = std::move(messages);

    const bool with_tools = tool_use_ != nullptr && !context["tools"].is_null();
    std::string rendered = run_with_content(with_tools ? *tool_use_ : *default_, context);
    if (options.continue_final_message) cut_behind_final(rendered, continued);
    auto [text, literal] = marks_.unmarked(rendered, mark);
    return {std::move(text), std::move(literal), {}};
  }

  BridgeHandle<BridgeTemplate> compile(std::string_view source, const char* name) const {
    BridgeHandle<BridgeTemplate> compiled(bridge_template_compile(to_slice(source)));
    if (!compiled) {
      const std::string message = bridge_last_error();
      fail_param(ErrorCode::kUnsupported, origin_, "{}: {}: {}", origin_, name, message);
    }
    return compiled;
  }

  // All but the messages. A key in the conversation's own words wins over the checkpoint's.
  ordered_json variables(const ChatOptions& options) const {
    if (!options.tools.is_null() && !options.tools.is_array())
      fail_param(ErrorCode::kInvalidArgument, "tools", "tools: must be an array of tools");
    if (!options.extra.is_null() && !options.extra.is_object())
      fail_param(ErrorCode::kInvalidArgument, "chat_template_kwargs",
                 "chat_template_kwargs: must be an object");
    require_depth(options.tools, "tools");
    require_depth(options.extra, "chat_template_kwargs");
    ordered_json context = constants_;
    const bool has_tools = options.tools.is_array() && !options.tools.empty();
    context["tools"] = has_tools ? options.tools : ordered_json();
    context["documents"] = nullptr;
    context["add_generation_prompt"] =
        options.add_generation_prompt && !options.continue_final_message;
    for (const auto& [key, value] : options.extra.items()) {
      if (std::find(kReserved.begin(), kReserved.end(), key) != kReserved.end())
        fail_param(ErrorCode::kInvalidArgument, "chat_template_kwargs." + key,
                   "chat_template_kwargs.{}: has a field of its own in the request", key);
      context[key] = value;
    }
    return context;
  }

  void mark_outside_text(ordered_json& messages, const std::string& mark) const {
    for (ordered_json& message : messages) {
      const auto& role = message["role"].get_ref<const std::string&>();
      if (std::find(kOutsideRoles.begin(), kOutsideRoles.end(), role) == kOutsideRoles.end())
        continue;
      auto& content = message["content"].get_ref<std::string&>();
      content = marks_.marked(content, mark);
    }
  }

  // Returns the text to continue.
  static std::string tag_final(ordered_json& messages) {
    ordered_json& message = messages.back();
    const std::string name = fmt::format("messages[{}].content", messages.size() - 1);
    const auto content = message.find("content");
    if (content == message.end())
      fail_param(ErrorCode::kInvalidArgument, name,
                 "{}: continue_final_message needs a text to continue", name);
    std::string text = content->get<std::string>();
    *content = text + std::string(kContinueTag);
    return text;
  }

  static void cut_behind_final(std::string& rendered, std::string_view continued) {
    const size_t tag = rendered.rfind(strip(kContinueTag));
    if (tag == std::string::npos || rendered.find(strip(continued)) == std::string::npos)
      fail_param(ErrorCode::kInvalidArgument, "continue_final_message",
                 "continue_final_message: the chat template does not keep the final message whole");
    const bool spaces_kept = rendered.compare(tag, kContinueTag.size(), kContinueTag) == 0;
    rendered.resize(tag);
    if (!spaces_kept) rendered.resize(strip_right(rendered).size());
  }

  // Templates that know no tools join the content of a call, which has none, to other text: where
  // they fail it becomes an empty one. Others tell a missing content from an empty one.
  std::string run_with_content(const BridgeTemplate& compiled, ordered_json& context) const try {
    return run(compiled, context);
  } catch (const Error& error) {
    bool lacked = false;
    for (ordered_json& message : context["messages"])
      lacked |= message.emplace("content", "").second;
    if (!lacked || error.code() != ErrorCode::kInvalidArgument) throw;
    return run(compiled, context);
  }

  std::string run(const BridgeTemplate& compiled, const ordered_json& context) const {
    const std::string variables = to_text(context);
    BridgeBytesBuffer out;
    const BridgeRenderStatus status =
        bridge_template_render(&compiled, to_slice(variables), out.out());
    if (status == BRIDGE_RENDER_OK) return {out.begin(), out.end()};
    const std::string message = bridge_last_error();
    if (status == BRIDGE_RENDER_RAISED)
      throw Error(ErrorCode::kInvalidArgument, message, "messages");
    if (status == BRIDGE_RENDER_UNAVAILABLE)
      fail(ErrorCode::kResourceExhausted, "{}: {}", origin_, message);
    fail_param(ErrorCode::kInvalidArgument, "messages", "{}: {}", origin_, message);
  }

  std::string origin_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  SpecialMarks marks_;
  BridgeHandle<BridgeTemplate> default_, tool_use_;
  std::string source_;  // of default_
  bool is_fallback_ = false;
  ordered_json constants_;
};

}  // namespace

std::shared_ptr<const ChatTemplate> ChatTemplate::build(
    const TokenizerSource& source, std::shared_ptr<const Tokenizer> tokenizer) {
  return std::make_shared<BridgedTemplate>(source, std::move(tokenizer));
}

}  // namespace mantou::text
