// GET /health: ready, or 503 once the server takes nothing new. (While the model loads, the Server
// answers 503 itself.)
#include "server/api_error.h"
#include "server/endpoints/endpoints.h"

namespace mantou::server {

void health(const Services& services, const HttpRequest&,
            const std::shared_ptr<Responder>& responder) {
  if (!services.engine.accepting()) fail(ErrorCode::kUnavailable, "the server is shutting down");
  responder->send({200, "{\"status\": \"ok\"}"});
}

}  // namespace mantou::server
