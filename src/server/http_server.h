// The transport: listens, reads requests, writes answers. One io thread, Boost.Beast's parser
// behind it (only http_beast*.cc include Boost).
//
// Owned by Server. The handler is called on the io thread and must return soon; answers may come
// from any thread through the Responder.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace mantou::server {

struct HttpLimits {
  size_t header_bytes = 64 << 10;
  size_t body_bytes = size_t{64} << 20;
  size_t pending_bytes = 1 << 20;  // of a stream, written but not yet taken by the system
  int connections = 1024;          // more wait in the backlog
  std::chrono::milliseconds header_time{30'000};  // from a request's first byte to its last header
  std::chrono::milliseconds body_time{30'000};    // between two pieces of a body
  std::chrono::milliseconds idle_time{75'000};    // between two requests
  std::chrono::milliseconds write_time{30'000};   // between two pieces the client accepts
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any free one
  int backlog = 1024;
  HttpLimits limits;
  std::vector<std::string> allowed_origins;  // for browsers' CORS; "*" is any; empty: none
};

using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<Responder>)>;

class HttpServer {
 public:
  class Transport;  // http_beast.cc

  // Listens when it returns. kIo or kInvalidArgument naming host and port otherwise.
  HttpServer(HttpOptions options, HttpHandler handler);
  ~HttpServer();  // closes everything at once
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;

  // Closes the listening socket and idle connections; answers in progress go on.
  void stop_accepting();
  // … waits up to `grace` until these are written, then closes what is left and ends the thread.
  void stop(std::chrono::milliseconds grace);

 private:
  std::unique_ptr<Transport> transport_;
};

// Why a request cannot be answered by an endpoint.
struct HttpProblem {
  int status = 400;
  std::string message;
};

// Bytes of one connection to one request. No sockets, so tests and fuzzers can drive it.
class RequestReader {
 public:
  enum class State {
    kMore,      // give it the bytes that follow
    kContinue,  // as kMore, and the client waits for "100 Continue"; once
    kDone,      // take() it
    kProblem,   // answer with problem() and close
  };

  explicit RequestReader(const HttpLimits& limits);
  ~RequestReader();
  RequestReader& operator=(RequestReader&&) noexcept;

  // Takes a beginning of `bytes`; says in `used` how much. The rest comes again, with what follows.
  State feed(std::string_view bytes, size_t& used);
  bool header_done() const;
  HttpRequest take();
  const HttpProblem& problem() const;

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace mantou::server
