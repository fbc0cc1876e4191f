// Which endpoint answers which request: one table. Immutable; any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/api_error.h"
#include "server/http.h"
#include "server/services.h"

namespace mantou::server {

using Endpoint = void (*)(const Services&, const HttpRequest&, const std::shared_ptr<Responder>&);

// kIo: answers at once from memory, so it never waits behind a long prompt. kWorker: parses,
// renders or tokenizes.
enum class RunOn { kIo, kWorker };

struct Route {
  std::string_view method;
  std::string_view path;  // "/v1/models/*": the rest of the path is an id, slashes included
  Endpoint endpoint;
  RunOn run_on;
  bool open = false;                      // answers without an API key, too
  Protocol protocol = Protocol::kOpenAi;  // of its errors
};

// The protocol of the route at this path or above it; OpenAI's elsewhere.
Protocol protocol_at(std::string_view path);

// The route of a request, or the answer when there is none: 404 naming the routes, 405 with Allow,
// the answer to OPTIONS and to GET /.
struct RouteResult {
  const Route* route = nullptr;
  HttpResponse response;
};
RouteResult find_route(std::string_view method, std::string_view path,
                       const std::string& request_id = {});

}  // namespace mantou::server
