// GET /openapi.json: what the server answers, for programs.
#include "server/openapi/openapi.h"

#include "base/json.h"
#include "server/endpoints/endpoints.h"

namespace mantou::server {

void openapi(const Services& services, const HttpRequest&,
             const std::shared_ptr<Responder>& responder) {
  const Json document = openapi_document(services.build_info, services.tokenizer->vocab_size());
  responder->send({200, to_text(document)});
}

}  // namespace mantou::server
