// The HTTP server: transport, workers and routes put together.
//
// In the order of a server's life:
// - Server(options) listens; everything but GET / answers 503 "loading".
// - attach(services) makes it ready.
// - stop_accepting() takes no new connections and answers new requests with 503; then the engine's
//   shutdown(grace) lets running answers end or cancels them.
// - stop(grace) waits for the workers and for grammars that are being compiled (30 s at most), then
//   up to `grace` until what was written has left. Only then may the engine go.
//
// Owned by main; called from main's thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mailbox.h"
#include "server/access.h"
#include "server/http.h"
#include "server/http_server.h"
#include "server/router.h"
#include "server/services.h"

namespace mantou::server {

struct ServerOptions {
  HttpOptions http;
  int workers = 2;  // threads for JSON, templates and tokenizing
  AccessOptions access = {};
};

class Server {
 public:
  explicit Server(ServerOptions options);  // errors as HttpServer's and Access's
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void attach(Services services);
  int port() const { return http_->port(); }
  std::string url() const { return http_->url(); }
  void stop_accepting();
  void stop(std::chrono::milliseconds grace);

 private:
  void handle(HttpRequest request, const std::shared_ptr<Responder>& responder);
  std::optional<HttpResponse> refusal(const RouteResult& found, const HttpRequest& request) const;
  std::shared_ptr<const Services> services() const;

  const ServerOptions options_;
  const Access access_;
  std::atomic<bool> ending_{false};
  mutable std::mutex mutex_;  // of services_
  std::shared_ptr<const Services> services_;
  Mailbox<std::function<void()>> jobs_;
  std::vector<std::thread> workers_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace mantou::server
