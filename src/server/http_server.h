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
  size_t target_bytes = 8 << 10;  // of a request's first line
  size_t header_bytes = 64 << 10;
  size_t header_fields = 128;
  size_t body_bytes = size_t{64} << 20;
  size_t pending_bytes = 1 << 20;  // of a stream, written but not yet taken by the system
  int connections = 1024;  // beyond, the longest idle one is closed; when none is, they wait
  // From a request's first byte to its last header; also of a TLS handshake.
  std::chrono::milliseconds header_time{30'000};
  std::chrono::milliseconds body_time{30'000};   // between two pieces of a body
  std::chrono::milliseconds idle_time{75'000};   // between two requests
  std::chrono::milliseconds write_time{30'000};  // between two pieces the client accepts
  // Bytes a second that a body arrives with, and an answer is taken with, at least: on the whole,
  // besides one such time, so that a byte now and then holds no connection for ever.
  size_t slowest_rate = 4 << 10;
};

struct HttpOptions {
  std::string host = "127.0.0.1";  // or the path of a UNIX socket, see is_socket_path()
  int port = 8080;                 // 0: any free one
  int backlog = 1024;
  HttpLimits limits;
  std::string certificate_file, key_file;    // PEM; both: TLS, none: plain
  std::vector<std::string> allowed_origins;  // for browsers' CORS; "*" is any; empty: none
};

using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<Responder>)>;
// The answer to a request that needs no look at its body, which is not there yet: a refusal.
using HeadCheck = std::function<std::optional<HttpResponse>(const HttpRequest&)>;

class HttpServer {
 public:
  class Transport;  // http_beast.cc

  // Listens when it returns. kIo or kInvalidArgument naming host, port or file otherwise.
  // Where a body is still to come, `check` is asked before it is read. Both are called on the io
  // thread.
  HttpServer(const HttpOptions& options, HttpHandler handler, HeadCheck check = {});
  ~HttpServer();  // closes everything at once
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;         // 0: a UNIX socket
  std::string url() const;  // "https://127.0.0.1:8080"; "unix:/run/mantou.sock"

  // Closes the listening socket. Connections end with the answer in progress, idle ones with that
  // to the next request.
  void stop_accepting();
  // … closes idle connections, waits up to `grace` for the others, then closes what is left and
  // ends the thread.
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
  HttpRequest& head();  // when header_done(): all but the body
  HttpRequest take();
  const HttpProblem& problem() const;

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace mantou::server
