#include "server/access.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "text/strip.h"

namespace mantou::server {
namespace {

// Takes the same time wherever the first difference is.
bool equal_secret(std::string_view given, std::string_view secret) {
  unsigned difference = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i)
    difference |= unsigned(uint8_t(given[i]) ^ uint8_t(secret[i % secret.size()]));
  return difference == 0;
}

std::string_view key_of(const HttpRequest& request) {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view given = request.header("authorization");
  if (equal_ignoring_case(given.substr(0, kScheme.size()), kScheme))
    return given.substr(kScheme.size());
  return request.header("x-api-key");
}

// The name or address alone, of "name:8080", "[::1]:8080" and "::1".
std::string_view name_of(std::string_view host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return std::count(host.begin(), host.end(), ':') == 1 ? host.substr(0, host.find(':')) : host;
}

bool is_address(std::string_view name) {
  return name.find_first_not_of("0123456789.") == name.npos || name.find(':') != name.npos;
}

// Nobody but this machine says where these are.
bool is_localhost(std::string_view name) {
  constexpr std::string_view kName = "localhost";
  if (name.ends_with('.')) name.remove_suffix(1);
  const bool below = name.size() > kName.size() && name[name.size() - kName.size() - 1] == '.';
  return (below || name.size() == kName.size()) &&
         equal_ignoring_case(name.substr(name.size() - kName.size()), kName);
}

bool is_loopback(std::string_view name) {
  return is_localhost(name) || name == "::1" || (is_address(name) && name.starts_with("127."));
}

}  // namespace

Access::Access(AccessOptions options, std::string_view host)
    : options_(std::move(options)), check_hosts_(options_.api_keys.empty() && is_loopback(host)) {
  for (const std::string& key : options_.api_keys) {
    const auto printable = [](char c) { return c > ' ' && c < 0x7f; };
    if (key.empty() || !std::all_of(key.begin(), key.end(), printable))
      fail_param(ErrorCode::kInvalidArgument, "api-key",
                 "an API key must be printable ASCII without spaces: no header carries others");
  }
}

bool Access::has_key(const HttpRequest& request) const {
  if (options_.api_keys.empty()) return true;
  const std::string_view given = key_of(request);
  bool found = false;
  for (const std::string& key : options_.api_keys) found |= equal_secret(given, key);
  return found;
}

// A page of another site whose name was made to point to this machine is, to a browser, this
// server's own; but the browser still says that name. An address cannot be made to point elsewhere.
bool Access::is_called_by_name(const HttpRequest& request) const {
  const std::string_view name = name_of(request.header("host"));
  if (!check_hosts_ || is_address(name) || is_localhost(name)) return true;
  return std::any_of(options_.allowed_hosts.begin(), options_.allowed_hosts.end(),
                     [&](const std::string& allowed) {
                       return allowed == "*" || equal_ignoring_case(allowed, name);
                     });
}

std::optional<HttpProblem> Access::refusal(const HttpRequest& request) const {
  if (!has_key(request))
    return HttpProblem{401,
                       "this server needs its API key: \"Authorization: Bearer KEY\" or "
                       "\"x-api-key: KEY\""};
  if (!is_called_by_name(request))
    return HttpProblem{
        403, fmt::format("this server is not called '{}'; if it shall be, start it "
                         "with --allowed-hosts {}",
                         name_of(request.header("host")), name_of(request.header("host")))};
  return std::nullopt;
}

std::vector<std::string> read_api_keys(const std::string& file) {
  const std::string text = read_file(file, 1 << 20);
  std::vector<std::string> keys;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = text::strip(rest.substr(0, end));
    if (!line.empty() && line[0] != '#') keys.emplace_back(line);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (keys.empty())
    fail_param(ErrorCode::kInvalidArgument, "api-key-file",
               "--api-key-file: '{}' holds no key; without one the server would be open", file);
  return keys;
}

}  // namespace mantou::server
