// GET /health: ready. (While the model loads, the router answers 503 itself.)
#include "server/endpoints/endpoints.h"

namespace mantou::server {

void health(const Services&, const HttpRequest&, const std::shared_ptr<Responder>& responder) {
  responder->send({200, "{\"status\": \"ok\"}"});
}

}  // namespace mantou::server
