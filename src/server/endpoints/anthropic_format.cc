#include "server/endpoints/anthropic_format.h"

#include <fmt/format.h>

#include <utility>

#include "base/json.h"
#include "base/json_builder.h"
#include "server/sse.h"

namespace mantou::server {
namespace {

std::string event(const Json& json) {
  return sse_event(json["type"].get_ref<const std::string&>(), to_text(json));
}

// Clients send it back as proof that the thinking is the model's own. Nothing here relies on it,
// but it must not be empty. FNV-1a.
std::string signature(std::string_view thinking) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : thinking) hash = (hash ^ uint8_t(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

std::string block_id(const ChoiceState::Call& call) {
  return "toolu_" + call.id.substr(call.id.find('_') + 1);
}

// What models write is meant to be JSON, but need not be.
Json input_of(const ChoiceState::Call& call) try {
  Json input = build_json<Json>(call.complete ? call.arguments : closed_json(call.arguments),
                                {.depth = 1 << 10});
  return input.is_object() ? input : Json::object();
} catch (const JsonDefect&) {
  return Json::object();
}

std::string_view stop_reason(const ChoiceState& choice) {
  if (choice.finish == "length")
    return choice.end.context_full ? "model_context_window_exceeded" : "max_tokens";
  if (choice.finish == "tool_calls") return "tool_use";
  return choice.end.stop.empty() ? "end_turn" : "stop_sequence";
}

Json stop_sequence(const ChoiceState& choice) {
  return stop_reason(choice) == "stop_sequence" ? Json(choice.end.stop) : Json(nullptr);
}

}  // namespace

std::string closed_json(std::string_view beginning) {
  std::string open, safe_open;  // closing brackets of what is open: now, and at `safe`
  size_t safe = 0;              // so much of it can stand
  bool in_string = false, escaped = false, is_key = false;
  const auto can_stand = [&](size_t end) {
    safe = end;
    safe_open = open;
  };
  for (size_t i = 0; i < beginning.size(); ++i) {
    const char c = beginning[i];
    if (in_string) {
      if (c == '"' && !escaped) {
        in_string = false;
        if (!is_key) can_stand(i + 1);
      }
      escaped = c == '\\' && !escaped;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == ':') is_key = false;
    if (c == ',') {
      can_stand(i);
      is_key = open.ends_with('}');
    }
    if (c == '{' || c == '[') {
      open += c == '{' ? '}' : ']';
      is_key = c == '{';
      can_stand(i + 1);
    }
    if ((c == '}' || c == ']') && !open.empty()) {
      open.pop_back();
      is_key = false;
      can_stand(i + 1);
    }
  }
  return std::string(beginning.substr(0, safe)).append(safe_open.rbegin(), safe_open.rend());
}

AnthropicFormat::AnthropicFormat(ReplyHead head, std::string request_id, int64_t prompt_tokens,
                                 bool omits_thinking)
    : head_(std::move(head)),
      request_id_(std::move(request_id)),
      prompt_tokens_(prompt_tokens),
      omits_thinking_(omits_thinking) {}

void AnthropicFormat::admitted(const Admission& admission) {
  cached_tokens_ = admission.cached_tokens;
}

std::string AnthropicFormat::first_events(int) {
  return event(
      {{"type", "message_start"}, {"message", message(Json::array(), nullptr, nullptr, 0)}});
}

std::string AnthropicFormat::progress_events(int64_t, int64_t) { return event({{"type", "ping"}}); }

std::string AnthropicFormat::delta_events(const ChoiceState& choice,
                                          std::span<const text::OutputEvent> delta,
                                          std::span<const ReportedToken>) {
  std::string events;
  for (const text::OutputEvent& piece : delta) switch (piece.kind) {
      case Kind::kContent:
        if (!open_ || kind_ != piece.kind)
          events += open_block(piece.kind, {{"type", "text"}, {"text", ""}});
        events += block_delta({{"type", "text_delta"}, {"text", piece.text}});
        break;
      case Kind::kReasoning:
        if (!open_ || kind_ != piece.kind)
          events +=
              open_block(piece.kind, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
        thinking_ += piece.text;
        if (!omits_thinking_)
          events += block_delta({{"type", "thinking_delta"}, {"thinking", piece.text}});
        break;
      case Kind::kCallBegin: {
        const ChoiceState::Call& call = choice.calls[size_t(piece.call)];
        events += open_block(piece.kind, {{"type", "tool_use"},
                                          {"id", block_id(call)},
                                          {"name", call.name},
                                          {"input", Json::object()}});
        break;
      }
      case Kind::kCallArguments:
        events += block_delta({{"type", "input_json_delta"}, {"partial_json", piece.text}});
        break;
      case Kind::kCallEnd:
        events += close_block();
        break;
    }
  return events;
}

std::string AnthropicFormat::choice_end_events(const ChoiceState&, const Outcome*) {
  return close_block();
}

std::string AnthropicFormat::last_events(std::span<const ChoiceState> choices,
                                         const Outcome& outcome) {
  const ChoiceState& choice = choices.front();
  return event({{"type", "message_delta"},
                {"delta",
                 {{"stop_reason", stop_reason(choice)}, {"stop_sequence", stop_sequence(choice)}}},
                {"usage", usage(outcome.completion_tokens)}}) +
         event({{"type", "message_stop"}});
}

std::string AnthropicFormat::reply(std::span<const ChoiceState> choices, const Outcome& outcome) {
  const ChoiceState& choice = choices.front();
  Json content = Json::array();
  for (const ChoiceState::Part& part : choice.parts) content.push_back(part_block(choice, part));
  return to_text(message(std::move(content), stop_reason(choice), stop_sequence(choice),
                         outcome.completion_tokens));
}

std::string AnthropicFormat::error_events(const Error& error) {
  return sse_event("error", error_json(error, {protocol(), request_id_}));
}

Json AnthropicFormat::message(Json content, Json stop_reason, Json stop_sequence,
                              int64_t output_tokens) const {
  return {{"id", head_.id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", head_.model},
          {"content", std::move(content)},
          {"stop_reason", std::move(stop_reason)},
          {"stop_sequence", std::move(stop_sequence)},
          {"usage", usage(output_tokens)}};
}

Json AnthropicFormat::usage(int64_t output_tokens) const {
  return {{"input_tokens", prompt_tokens_ - cached_tokens_},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached_tokens_},
          {"output_tokens", output_tokens}};
}

Json AnthropicFormat::thinking_block(std::string_view thinking) const {
  return {{"type", "thinking"},
          {"thinking", omits_thinking_ ? std::string_view() : thinking},
          {"signature", signature(thinking)}};
}

Json AnthropicFormat::part_block(const ChoiceState& choice, const ChoiceState::Part& part) const {
  if (part.kind == Kind::kContent)
    return {{"type", "text"}, {"text", choice.content.substr(part.begin, part.size)}};
  if (part.kind == Kind::kReasoning)
    return thinking_block(std::string_view(choice.reasoning).substr(part.begin, part.size));
  const ChoiceState::Call& call = choice.calls[part.begin];
  return {
      {"type", "tool_use"}, {"id", block_id(call)}, {"name", call.name}, {"input", input_of(call)}};
}

std::string AnthropicFormat::open_block(Kind kind, Json block) {
  std::string events = close_block();
  open_ = true;
  kind_ = kind;
  blocks_++;
  return events + event({{"type", "content_block_start"},
                         {"index", blocks_ - 1},
                         {"content_block", std::move(block)}});
}

std::string AnthropicFormat::close_block() {
  if (!std::exchange(open_, false)) return {};
  std::string events;
  if (kind_ == Kind::kReasoning)
    events = block_delta(
        {{"type", "signature_delta"}, {"signature", signature(std::exchange(thinking_, {}))}});
  return events + event({{"type", "content_block_stop"}, {"index", blocks_ - 1}});
}

std::string AnthropicFormat::block_delta(Json delta) const {
  return event(
      {{"type", "content_block_delta"}, {"index", blocks_ - 1}, {"delta", std::move(delta)}});
}

}  // namespace mantou::server
