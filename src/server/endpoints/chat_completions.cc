// POST /v1/chat/completions, OpenAI's shapes.
#include <utility>

#include "server/chat_prompt.h"
#include "server/completion_sink.h"
#include "server/endpoints/endpoints.h"
#include "server/endpoints/openai_format.h"
#include "server/generation_fields.h"

namespace mantou::server {
namespace {

class ChatFormat final : public OpenAiFormat {
 public:
  explicit ChatFormat(ReplyHead head)
      : OpenAiFormat(std::move(head), "chat.completion", "chat.completion.chunk") {}

  std::string first_events(int choices) override {
    std::string events;
    for (int i = 0; i < choices; i++)
      events += event(choice(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr));
    return events;
  }

  std::string delta_events(const ChoiceState& state, std::span<const text::OutputEvent> delta,
                           std::span<const ReportedToken> tokens) override {
    std::string events;
    for (size_t i = 0; i < delta.size(); i++) {
      const bool last = i + 1 == delta.size();
      Json json = delta_json(state, delta[i]);
      if (json.is_null() && !last) continue;
      if (json.is_null()) json = Json::object();
      if (json.empty() && !head_.logprobs) continue;
      events +=
          event(choice(state.index, std::move(json), last ? logprobs(tokens) : nullptr, nullptr));
    }
    if (delta.empty() && !tokens.empty())
      events += event(choice(state.index, Json::object(), logprobs(tokens), nullptr));
    return events;
  }

 private:
  // Null: nothing to say of it.
  static Json delta_json(const ChoiceState& state, const text::OutputEvent& event) {
    using Kind = text::OutputEvent::Kind;
    switch (event.kind) {
      case Kind::kContent:
        return {{"content", event.text}};
      case Kind::kReasoning:
        return {{"reasoning_content", event.text}};
      case Kind::kCallBegin:
        return {{"tool_calls",
                 Json::array({{{"index", event.call},
                               {"id", state.calls[size_t(event.call)].id},
                               {"type", "function"},
                               {"function", {{"name", event.text}, {"arguments", ""}}}}})}};
      case Kind::kCallArguments:
        return {{"tool_calls", Json::array({{{"index", event.call},
                                             {"function", {{"arguments", event.text}}}}})}};
      case Kind::kCallEnd:
        break;
    }
    return nullptr;
  }

  Json last_choice(const ChoiceState& state) override {
    return choice(state.index, Json::object(), nullptr, state.finish);
  }

  Json whole_choice(const ChoiceState& state) override {
    Json message = {{"role", "assistant"}, {"content", state.content}, {"refusal", nullptr}};
    if (state.content.empty() && !state.calls.empty()) message["content"] = nullptr;
    if (!state.reasoning.empty()) message["reasoning_content"] = state.reasoning;
    for (const ChoiceState::Call& call : state.calls)
      message["tool_calls"].push_back(
          {{"id", call.id},
           {"type", "function"},
           {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    return {{"index", state.index},
            {"message", std::move(message)},
            {"logprobs", logprobs(state.tokens)},
            {"finish_reason", state.finish}};
  }

  static Json choice(int index, Json delta, Json logprobs, Json finish) {
    return {{"index", index},
            {"delta", std::move(delta)},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", std::move(finish)}};
  }

  Json logprobs(std::span<const ReportedToken> tokens) const {
    if (!head_.logprobs) return nullptr;
    return {{"content", logprob_list(tokens)}, {"refusal", nullptr}};
  }
};

}  // namespace

void chat_completions(const Services& services, const HttpRequest& request,
                      const std::shared_ptr<Responder>& responder) {
  ChatRequest chat = parse_chat_request(request.body, services.defaults,
                                        services.engine.capabilities().vocab_size);
  if (chat.maps_roles && services.chat_template->is_fallback())
    fail_param(ErrorCode::kUnsupported, "role_mapping",
               "'role_mapping' is not supported: the model has no chat template, ChatML is used");
  Prompt prompt = render_chat(services, chat);
  auto format = std::make_unique<ChatFormat>(make_head(services, chat.generation, "chatcmpl-"));
  start_generation(services, request, responder, {std::move(prompt)}, std::move(chat.generation),
                   std::move(format));
}

}  // namespace mantou::server
