#include "server/server.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "server/api_error.h"
#include "server/grammar_compiler.h"
#include "server/template_caps.h"

namespace mantou::server {
namespace {

void run_endpoint(const Route& route, const Services& services, const HttpRequest& request,
                  const std::shared_ptr<Responder>& responder) {
  answer_errors(responder, {route.protocol, request.id},
                [&] { route.endpoint(services, request, responder); });
}

HttpResponse ending_response(const ErrorShape& shape) {
  return error_response(Error(ErrorCode::kUnavailable, "the server is shutting down"), shape);
}

// For what Access refuses.
HttpResponse refusal_response(const HttpProblem& problem, const ErrorShape& shape) {
  HttpResponse response = error_response(problem.status, problem.message, shape);
  if (problem.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace

Server::Server(ServerOptions options)
    : options_(std::move(options)), access_(options_.access, options_.http.host) {
  http_ = std::make_unique<HttpServer>(
      options_.http,
      [this](HttpRequest request, const std::shared_ptr<Responder>& responder) {
        handle(std::move(request), responder);
      },
      [this](const HttpRequest& head) {
        return refusal(find_route(head.method, head.path, head.id), head);
      });
  for (int i = 0; i < std::max(1, options_.workers); ++i) {
    workers_.emplace_back([this] {
      while (const auto job = jobs_.pop()) (*job)();
    });
  }
}

Server::~Server() { stop(std::chrono::milliseconds(0)); }

void Server::attach(Services services) {
  services.grammars = std::make_shared<GrammarCompiler>(services.tokenizer);
  services.template_caps = template_caps(*services.chat_template);
  auto shared = std::make_shared<const Services>(std::move(services));
  std::lock_guard lock(mutex_);
  services_ = std::move(shared);
}

std::shared_ptr<const Services> Server::services() const {
  std::lock_guard lock(mutex_);
  return services_;
}

void Server::stop_accepting() {
  ending_ = true;
  http_->stop_accepting();
}

void Server::stop(std::chrono::milliseconds grace) {
  stop_accepting();
  jobs_.close();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
  if (const auto attached = services()) attached->grammars->close();
  http_->stop(grace);
}

// What a request is answered with whatever its body says.
std::optional<HttpResponse> Server::refusal(const RouteResult& found,
                                            const HttpRequest& request) const {
  if (found.route == nullptr) return found.response;
  const ErrorShape shape{found.route->protocol, request.id};
  if (!found.route->open) {
    if (const auto problem = access_.refusal(request)) return refusal_response(*problem, shape);
  }
  if (ending_) return ending_response(shape);
  if (!services()) return loading_error(shape);
  return std::nullopt;
}

void Server::handle(HttpRequest request, const std::shared_ptr<Responder>& responder) {
  const RouteResult found = find_route(request.method, request.path, request.id);
  if (auto response = refusal(found, request)) return responder->send(std::move(*response));
  const Route& route = *found.route;
  const ErrorShape shape{route.protocol, request.id};
  std::shared_ptr<const Services> services = this->services();
  if (route.run_on == RunOn::kIo) return run_endpoint(route, *services, request, responder);
  auto job = [&route, services, responder,
              shared = std::make_shared<const HttpRequest>(std::move(request))] {
    run_endpoint(route, *services, *shared, responder);
  };
  if (!jobs_.push(std::move(job))) responder->send(ending_response(shape));
}

}  // namespace mantou::server
