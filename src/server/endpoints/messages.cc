// POST /v1/messages, Anthropic's shapes.
#include <utility>

#include "server/chat_prompt.h"
#include "server/completion_sink.h"
#include "server/endpoints/anthropic_format.h"
#include "server/endpoints/anthropic_request.h"
#include "server/endpoints/endpoints.h"

namespace mantou::server {

void messages(const Services& services, const HttpRequest& request,
              const std::shared_ptr<Responder>& responder) {
  MessagesRequest parsed =
      parse_messages_request(request.body, services.defaults,
                             services.engine.capabilities().vocab_size, MaxTokens::kRequired);
  GenerationFields& fields = parsed.chat.generation;
  Prompt prompt = render_chat(services, parsed.chat);
  auto format =
      std::make_unique<AnthropicFormat>(make_head(services, fields, "msg_"), request.id,
                                        int64_t(prompt.ids.size()), parsed.omits_thinking);
  start_generation(services, request, responder, {std::move(prompt)}, std::move(fields),
                   std::move(format));
}

}  // namespace mantou::server
