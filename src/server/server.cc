#include "server/server.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "server/api_error.h"
#include "server/router.h"

namespace mantou::server {
namespace {

// The boundary of endpoints: what they throw becomes the answer.
void run_endpoint(const Route& route, const Services& services, const HttpRequest& request,
                  const std::shared_ptr<Responder>& responder) {
  const ErrorShape shape{route.protocol, request.id};
  try {
    route.endpoint(services, request, responder);
  } catch (const Error& error) {
    log_info("refused", {{"id", request.id}, {"error", error.message()}});
    responder->send(error_response(error, shape));
  } catch (const std::bad_alloc&) {
    responder->send(error_response(Error(ErrorCode::kUnavailable, "out of memory"), shape));
  } catch (const std::exception& other) {
    log_error("endpoint", {{"id", request.id}, {"path", request.path}, {"error", other.what()}});
    responder->send(error_response(Error(ErrorCode::kInternal, "unexpected failure"), shape));
  }
}

// Takes the same time wherever the first difference is.
bool equal_secret(std::string_view given, std::string_view secret) {
  unsigned difference = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i)
    difference |= unsigned(uint8_t(given[i]) ^ uint8_t(secret[i % secret.size()]));
  return difference == 0;
}

}  // namespace

Server::Server(ServerOptions options) : options_(std::move(options)) {
  http_ = std::make_unique<HttpServer>(
      options_.http, [this](HttpRequest request, const std::shared_ptr<Responder>& responder) {
        handle(std::move(request), responder);
      });
  for (int i = 0; i < std::max(1, options_.workers); ++i) {
    workers_.emplace_back([this] {
      while (const auto job = jobs_.pop()) (*job)();
    });
  }
}

Server::~Server() { stop(std::chrono::milliseconds(0)); }

void Server::attach(Services services) {
  auto shared = std::make_shared<const Services>(std::move(services));
  std::lock_guard lock(mutex_);
  services_ = std::move(shared);
}

std::shared_ptr<const Services> Server::services() const {
  std::lock_guard lock(mutex_);
  return services_;
}

void Server::stop_accepting() { http_->stop_accepting(); }

void Server::stop(std::chrono::milliseconds grace) {
  http_->stop_accepting();
  jobs_.close();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
  http_->stop(grace);
}

bool Server::authorized(const HttpRequest& request) const {
  if (options_.api_key.empty()) return true;
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view given = request.header("authorization");
  if (equal_secret(request.header("x-api-key"), options_.api_key)) return true;
  return given.size() > kScheme.size() &&
         equal_ignoring_case(given.substr(0, kScheme.size()), kScheme) &&
         equal_secret(given.substr(kScheme.size()), options_.api_key);
}

void Server::handle(HttpRequest request, const std::shared_ptr<Responder>& responder) {
  const RouteResult found = find_route(request.method, request.path, request.id);
  if (found.route == nullptr) return responder->send(found.response);
  const Route& route = *found.route;
  const ErrorShape shape{route.protocol, request.id};
  if (!route.open && !authorized(request)) {
    HttpResponse refusal = error_response(
        401, "this server needs its API key as a bearer token or as x-api-key", shape);
    refusal.headers.emplace_back("WWW-Authenticate", "Bearer");
    return responder->send(std::move(refusal));
  }
  std::shared_ptr<const Services> services = this->services();
  if (!services) return responder->send(loading_error(shape));
  if (route.run_on == RunOn::kIo) return run_endpoint(route, *services, request, responder);
  auto job = [&route, services, responder,
              shared = std::make_shared<const HttpRequest>(std::move(request))] {
    run_endpoint(route, *services, *shared, responder);
  };
  if (!jobs_.push(std::move(job)))
    responder->send(
        error_response(Error(ErrorCode::kUnavailable, "the server is shutting down"), shape));
}

}  // namespace mantou::server
