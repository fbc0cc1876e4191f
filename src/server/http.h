// HTTP as the endpoints see it: plain requests, plain responses, and a Responder that takes one
// answer. No socket and no Boost type appears here; http_server.h is the transport behind it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mantou::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string id;  // goes into logs and the x-request-id header
  std::string method;
  std::string path;  // percent-decoded, without the query
  Headers headers = {};
  std::string body;
  bool keep_alive = true;
  bool http_1_0 = false;
  std::string query = {};  // behind the "?", as it came

  // The first header of that name (any case); empty when there is none.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  Headers headers = {};
};

// Takes the answer to one request: either send(), or begin_stream(), write()… and finish(). Any
// thread, one at a time. Nothing here blocks; what the client has not read yet is kept up to a
// limit.
class Responder {
 public:
  virtual ~Responder() = default;

  virtual void send(HttpResponse response) = 0;

  // False: the client is gone, or so slow that the limit was reached; the answer is of no use.
  virtual bool begin_stream(std::string_view content_type) = 0;
  virtual bool write(std::string_view bytes) = 0;
  virtual void finish() = 0;
  // The end of a stream that failed: what was written still leaves, then the connection is closed.
  virtual void finish_and_close() = 0;

  virtual bool started() const = 0;  // send() or begin_stream() was called

  // `callback` is called once when the client has left before the answer was complete, at once when
  // it already has; on the io thread or the caller's. A later callback takes its place.
  virtual void on_gone(std::function<void()> callback) = 0;
};

// "Not Found" for 404.
std::string_view reason_phrase(int status);

bool equal_ignoring_case(std::string_view a, std::string_view b);

// The bytes of "%41" sequences; false when one is malformed or stands for NUL.
bool percent_decode(std::string_view text, std::string& out);

// The decoded value of a name in a query ("a=1&b"); empty when it is not there or malformed.
std::string query_value(std::string_view query, std::string_view name);

// What the client calls its request (x-request-id), when that is fit for a log; otherwise a new
// name.
std::string request_id(const HttpRequest& request);

// Whether a server's --host is the path of a UNIX socket: it holds a slash or ends in ".sock".
bool is_socket_path(std::string_view host);

// Headers of every answer to the request: its id, under the names of OpenAI and Anthropic, and what
// a browser from one of `allowed_origins` needs ("*": any; none: nothing, so that browsers keep
// other sites out).
Headers common_headers(const std::vector<std::string>& allowed_origins, const HttpRequest& request);

}  // namespace mantou::server
