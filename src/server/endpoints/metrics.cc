// GET /metrics: for Prometheus; see server/metrics.h.
#include "server/metrics.h"

#include "server/endpoints/endpoints.h"

namespace mantou::server {

void metrics(const Services& services, const HttpRequest&,
             const std::shared_ptr<Responder>& responder) {
  HttpResponse response{200,
                        metrics_text(services.engine.stats(), services.model_id, services.created),
                        std::string(kMetricsContentType)};
  response.headers.emplace_back("Process-Start-Time-Unix", std::to_string(services.created));
  responder->send(std::move(response));
}

}  // namespace mantou::server
