// POST /v1/messages/count_tokens, Anthropic's shapes: how long the prompt of a request would be.
#include "base/json.h"
#include "server/chat_prompt.h"
#include "server/endpoints/anthropic_request.h"
#include "server/endpoints/endpoints.h"

namespace mantou::server {

void count_tokens(const Services& services, const HttpRequest& request,
                  const std::shared_ptr<Responder>& responder) {
  MessagesRequest parsed =
      parse_messages_request(request.body, services.defaults,
                             services.engine.capabilities().vocab_size, MaxTokens::kUnused);
  const Prompt prompt = render_chat(services, parsed.chat);
  responder->send({200, to_text(Json{{"input_tokens", prompt.ids.size()}})});
}

}  // namespace mantou::server
