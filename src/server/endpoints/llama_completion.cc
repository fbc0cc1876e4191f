// POST /completion and /completions: llama-server's own protocol, a prompt continued as it stands.
#include <utility>

#include "server/completion_sink.h"
#include "server/endpoints/endpoints.h"
#include "server/endpoints/llama_fields.h"
#include "server/endpoints/llama_format.h"

namespace mantou::server {

void llama_completion(const Services& services, const HttpRequest& http,
                      const std::shared_ptr<Responder>& responder) {
  LlamaRequest request = parse_llama_request(http.body, services.defaults, *services.tokenizer);
  auto format = std::make_unique<LlamaFormat>(request, services.model_id,
                                              services.tokenizer->decode(request.prompt, false));
  Prompt prompt{.ids = std::move(request.prompt), .field = "prompt"};
  start_generation(services, http, responder, {std::move(prompt)}, std::move(request.generation),
                   std::move(format));
}

}  // namespace mantou::server
