#include "server/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/ascii.h"
#include "base/random.h"

namespace mantou::server {
namespace {

constexpr std::array<std::pair<int, std::string_view>, 18> kReasons = {{
    {200, "OK"},
    {204, "No Content"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {411, "Length Required"},
    {413, "Payload Too Large"},
    {414, "URI Too Long"},
    {417, "Expectation Failed"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
}};

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (lower(c) >= 'a' && lower(c) <= 'f') return lower(c) - 'a' + 10;
  return -1;
}

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (equal_ignoring_case(key, name)) return value;
  }
  return {};
}

std::string_view reason_phrase(int status) {
  for (const auto& [code, phrase] : kReasons) {
    if (code == status) return phrase;
  }
  return "Unknown";
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

bool percent_decode(std::string_view text, std::string& out) {
  out.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return false;
    const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return false;
    out += char(high * 16 + low);
    i += 2;
  }
  return true;
}

std::string query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const size_t equals = pair.find('=');
    std::string value;
    if (pair.substr(0, equals) == name && equals != pair.npos &&
        percent_decode(pair.substr(equals + 1), value))
      return value;
  }
  return {};
}

std::string request_id(const HttpRequest& request) {
  const std::string_view given = request.header("x-request-id");
  const auto fit = [](char c) {
    return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9') ||
           std::string_view("-_.:").find(c) != std::string_view::npos;
  };
  if (!given.empty() && given.size() <= 128 && std::all_of(given.begin(), given.end(), fit))
    return std::string(given);
  return fmt::format("req_{:016x}", random_bits());
}

bool is_socket_path(std::string_view host) {
  return host.find('/') != host.npos || host.ends_with(".sock");
}

Headers common_headers(const std::vector<std::string>& allowed_origins,
                       const HttpRequest& request) {
  Headers headers{{"x-request-id", request.id}, {"request-id", request.id}};
  const std::string_view origin = request.header("origin");
  if (origin.empty() || allowed_origins.empty()) return headers;
  headers.emplace_back("Vary", "Origin");
  for (const std::string& allowed : allowed_origins) {
    if (allowed != "*" && allowed != origin) continue;
    headers.emplace_back("Access-Control-Allow-Origin", origin);
    if (request.method != "OPTIONS") {
      headers.emplace_back("Access-Control-Expose-Headers",
                           "x-request-id, request-id, retry-after");
      break;
    }
    // Clients' libraries bring headers of their own (x-api-key, anthropic-version, x-stainless-…);
    // none of them does what its site may not do.
    const std::string_view wanted = request.header("access-control-request-headers");
    headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    headers.emplace_back("Access-Control-Allow-Headers",
                         wanted.empty() ? "authorization, content-type" : wanted);
    headers.emplace_back("Access-Control-Max-Age", "600");
    break;
  }
  return headers;
}

}  // namespace mantou::server
