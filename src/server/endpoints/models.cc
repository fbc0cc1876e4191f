// GET /v1/models and /v1/models/{id}: the one model that is loaded, in OpenAI's shape with the
// context sizes clients look for.
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "server/endpoints/endpoints.h"
#include "server/reply_format.h"

namespace mantou::server {
namespace {

Json model_json(const Services& services) {
  const Capabilities& can = services.engine.capabilities();
  return {{"id", services.model_id},
          {"object", "model"},
          {"created", services.created},
          {"owned_by", "mantou"},
          {"context_window", can.context},
          {"meta",
           {{"n_vocab", can.vocab_size},
            {"n_ctx", can.context},
            {"n_ctx_train", can.train_context},
            {"architecture", can.architecture}}}};
}

}  // namespace

void list_models(const Services& services, const HttpRequest&,
                 const std::shared_ptr<Responder>& responder) {
  const Json list = {{"object", "list"}, {"data", Json::array({model_json(services)})}};
  responder->send({200, to_text(list)});
}

void get_model(const Services& services, const HttpRequest& request,
               const std::shared_ptr<Responder>& responder) {
  constexpr std::string_view kPrefix = "/v1/models/";
  const std::string_view id = std::string_view(request.path).substr(kPrefix.size());
  if (id != services.model_id)
    fail_param(ErrorCode::kNotFound, "model", "no model named '{}'; this server runs '{}'", id,
               services.model_id);
  responder->send({200, to_text(model_json(services))});
}

}  // namespace mantou::server
