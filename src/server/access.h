// Who may use the server: the API keys it asks for and, on a loopback address without keys, the
// names it answers to. Immutable; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"
#include "server/http_server.h"

namespace mantou::server {

struct AccessOptions {
  std::vector<std::string> api_keys = {};  // a request brings one of them; none: nothing is asked
  std::vector<std::string> allowed_hosts = {};  // further names the server answers to; "*": any
};

class Access {
 public:
  // kInvalidArgument for a key that no header can carry. `host` is what the server listens on.
  Access(AccessOptions options, std::string_view host);

  // Why the request may not be answered: 401 without a key ("Authorization: Bearer …" or
  // "x-api-key: …"), 403 for another server's name.
  std::optional<HttpProblem> refusal(const HttpRequest& request) const;

 private:
  bool has_key(const HttpRequest& request) const;
  bool is_called_by_name(const HttpRequest& request) const;

  const AccessOptions options_;
  const bool check_hosts_;
};

// The keys of a file, one a line; empty lines and those that begin with # are skipped. kIo or
// kInvalidArgument naming the file: it cannot be read, or holds none.
std::vector<std::string> read_api_keys(const std::string& file);

}  // namespace mantou::server
