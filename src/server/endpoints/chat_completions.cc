// POST /v1/chat/completions, OpenAI's shapes.
#include <utility>

#include "server/completion_sink.h"
#include "server/endpoints/endpoints.h"
#include "server/endpoints/openai_format.h"
#include "server/generation_fields.h"

namespace mantou::server {
namespace {

Json logprob_json(const ReportedToken::Choice& choice) {
  Json bytes = Json::array();
  for (const char byte : choice.bytes) bytes.push_back(int(uint8_t(byte)));
  return {{"token", choice.bytes},
          {"logprob", finite_logprob(choice.logprob)},
          {"bytes", std::move(bytes)}};
}

class ChatFormat final : public OpenAiFormat {
 public:
  explicit ChatFormat(ReplyHead head)
      : OpenAiFormat(std::move(head), "chat.completion", "chat.completion.chunk") {}

  std::string first_events() override {
    return event(choice({{"role", "assistant"}, {"content", ""}}, nullptr, nullptr));
  }

  std::string delta_events(std::string_view text, std::span<const ReportedToken> tokens) override {
    return event(choice({{"content", text}}, logprobs(tokens), nullptr));
  }

 private:
  Json last_choice(std::string_view finish) override {
    return choice(Json::object(), nullptr, finish);
  }

  Json whole_choice(std::string_view text, std::span<const ReportedToken> tokens,
                    std::string_view finish) override {
    return {{"index", 0},
            {"message", {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}}},
            {"logprobs", logprobs(tokens)},
            {"finish_reason", finish}};
  }

  static Json choice(Json delta, Json logprobs, Json finish) {
    return {{"index", 0},
            {"delta", std::move(delta)},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", std::move(finish)}};
  }

  Json logprobs(std::span<const ReportedToken> tokens) const {
    if (!head_.logprobs) return nullptr;
    Json content = Json::array();
    for (const ReportedToken& token : tokens) {
      Json entry = logprob_json(token.chosen);
      entry["top_logprobs"] = Json::array();
      for (const auto& other : token.top) entry["top_logprobs"].push_back(logprob_json(other));
      content.push_back(std::move(entry));
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
  }
};

}  // namespace

void chat_completions(const Services& services, const HttpRequest& request,
                      const std::shared_ptr<Responder>& responder) {
  ChatRequest chat = parse_chat_request(request.body, services.defaults,
                                        services.engine.capabilities().vocab_size);
  text::ChatPrompt prompt = services.chat_template->render(chat.messages, chat.chat);
  auto format = std::make_unique<ChatFormat>(make_head(services, chat.generation, "chatcmpl-"));
  start_generation(services, request, responder, std::move(prompt.ids), "messages",
                   std::move(chat.generation), std::move(format));
}

}  // namespace mantou::server
