// The HTTP server: transport, workers and routes put together.
//
// In the order of a server's life:
// - Server(options) listens; everything but GET / answers 503 "loading".
// - attach(services) makes it ready.
// - stop_accepting() takes no new connections; then the engine's shutdown(grace) lets running
//   answers end or cancels them.
// - stop(grace) waits until what they wrote has left.
//
// Owned by main; called from main's thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/mailbox.h"
#include "server/http.h"
#include "server/http_server.h"
#include "server/services.h"

namespace mantou::server {

struct ServerOptions {
  HttpOptions http;
  int workers = 2;      // threads for JSON, templates and tokenizing
  std::string api_key;  // not empty: requests must bring it, as bearer token or x-api-key
};

class Server {
 public:
  explicit Server(ServerOptions options);  // errors as HttpServer's
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void attach(Services services);
  int port() const { return http_->port(); }
  void stop_accepting();
  void stop(std::chrono::milliseconds grace);

 private:
  void handle(HttpRequest request, const std::shared_ptr<Responder>& responder);
  bool authorized(const HttpRequest& request) const;
  std::shared_ptr<const Services> services() const;

  const ServerOptions options_;
  mutable std::mutex mutex_;  // of services_
  std::shared_ptr<const Services> services_;
  Mailbox<std::function<void()>> jobs_;
  std::vector<std::thread> workers_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace mantou::server
