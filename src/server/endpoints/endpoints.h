// Every endpoint: one function, one file. They parse the request, start the work and return; errors
// are thrown and become the error JSON of the route's protocol.
#pragma once

#include <memory>

#include "server/http.h"
#include "server/services.h"

namespace mantou::server {

void chat_completions(const Services& services, const HttpRequest& request,
                      const std::shared_ptr<Responder>& responder);
void completions(const Services& services, const HttpRequest& request,
                 const std::shared_ptr<Responder>& responder);
void messages(const Services& services, const HttpRequest& request,
              const std::shared_ptr<Responder>& responder);
void count_tokens(const Services& services, const HttpRequest& request,
                  const std::shared_ptr<Responder>& responder);
void list_models(const Services& services, const HttpRequest& request,
                 const std::shared_ptr<Responder>& responder);
void get_model(const Services& services, const HttpRequest& request,
               const std::shared_ptr<Responder>& responder);
void llama_completion(const Services& services, const HttpRequest& request,
                      const std::shared_ptr<Responder>& responder);
void tokenize(const Services& services, const HttpRequest& request,
              const std::shared_ptr<Responder>& responder);
void detokenize(const Services& services, const HttpRequest& request,
                const std::shared_ptr<Responder>& responder);
void apply_template(const Services& services, const HttpRequest& request,
                    const std::shared_ptr<Responder>& responder);
void props(const Services& services, const HttpRequest& request,
           const std::shared_ptr<Responder>& responder);
void slots(const Services& services, const HttpRequest& request,
           const std::shared_ptr<Responder>& responder);
void metrics(const Services& services, const HttpRequest& request,
             const std::shared_ptr<Responder>& responder);
void stats(const Services& services, const HttpRequest& request,
           const std::shared_ptr<Responder>& responder);
void openapi(const Services& services, const HttpRequest& request,
             const std::shared_ptr<Responder>& responder);
void health(const Services& services, const HttpRequest& request,
            const std::shared_ptr<Responder>& responder);

}  // namespace mantou::server
