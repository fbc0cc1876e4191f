// POST /v1/chat/completions, OpenAI's shapes.
#include <utility>

#include "server/completion_sink.h"
#include "server/endpoints/endpoints.h"
#include "server/generation_fields.h"
#include "server/reply_format.h"
#include "server/sse.h"

namespace mantou::server {
namespace {

Json logprob_json(const ReportedToken::Choice& choice) {
  Json bytes = Json::array();
  for (const char byte : choice.bytes) bytes.push_back(int(uint8_t(byte)));
  return {{"token", choice.bytes},
          {"logprob", finite_logprob(choice.logprob)},
          {"bytes", std::move(bytes)}};
}

class ChatFormat final : public ReplyFormat {
 public:
  explicit ChatFormat(ReplyHead head) : head_(std::move(head)) {}

  std::string first_events() override {
    return event(choice({{"role", "assistant"}, {"content", ""}}, nullptr, nullptr));
  }

  std::string delta_events(std::string_view text, std::span<const ReportedToken> tokens) override {
    return event(choice({{"content", text}}, logprobs(tokens), nullptr));
  }

  std::string last_events(std::string_view finish, const Outcome& outcome) override {
    Json last = choice(Json::object(), nullptr, finish);
    last["timings"] = timings_json(outcome);
    std::string events = event(std::move(last));
    if (head_.include_usage) {
      Json usage = frame("chat.completion.chunk");
      usage["choices"] = Json::array();
      usage["usage"] = usage_json(outcome);
      events += sse_event(dump(usage));
    }
    return events.append(kDoneEvent);
  }

  std::string reply(std::string_view text, std::span<const ReportedToken> tokens,
                    std::string_view finish, const Outcome& outcome) override {
    Json choice = {{"index", 0},
                   {"message", {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}}},
                   {"logprobs", logprobs(tokens)},
                   {"finish_reason", finish}};
    Json json = frame("chat.completion");
    json["choices"] = Json::array({std::move(choice)});
    json["usage"] = usage_json(outcome);
    json["timings"] = timings_json(outcome);
    return dump(json);
  }

 private:
  Json frame(std::string_view object) const {
    return {{"id", head_.id},
            {"object", object},
            {"created", head_.created},
            {"model", head_.model},
            {"system_fingerprint", head_.fingerprint}};
  }

  Json choice(Json delta, Json logprobs, Json finish) const {
    Json json = frame("chat.completion.chunk");
    Json only = {{"index", 0},
                 {"delta", std::move(delta)},
                 {"logprobs", std::move(logprobs)},
                 {"finish_reason", std::move(finish)}};
    json["choices"] = Json::array({std::move(only)});
    return json;
  }

  std::string event(Json json) const {
    if (head_.include_usage) json["usage"] = nullptr;
    return sse_event(dump(json));
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

  const ReplyHead head_;
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
