#include "server/router.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/api_error.h"
#include "server/endpoints/endpoints.h"

namespace mantou::server {
namespace {

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", chat_completions, RunOn::kWorker},
    {"POST", "/chat/completions", chat_completions, RunOn::kWorker},
    {"POST", "/v1/completions", completions, RunOn::kWorker},
    {"POST", "/v1/messages", messages, RunOn::kWorker, false, Protocol::kAnthropic},
    {"POST", "/v1/messages/count_tokens", count_tokens, RunOn::kWorker, false,
     Protocol::kAnthropic},
    {"GET", "/v1/models", list_models, RunOn::kIo},
    {"GET", "/v1/models/*", get_model, RunOn::kIo},
    {"POST", "/completion", llama_completion, RunOn::kWorker, false, Protocol::kLlama},
    {"POST", "/completions", llama_completion, RunOn::kWorker, false, Protocol::kLlama},
    {"POST", "/tokenize", tokenize, RunOn::kWorker, false, Protocol::kLlama},
    {"POST", "/detokenize", detokenize, RunOn::kWorker, false, Protocol::kLlama},
    {"POST", "/apply-template", apply_template, RunOn::kWorker, false, Protocol::kLlama},
    {"GET", "/props", props, RunOn::kWorker, false, Protocol::kLlama},
    {"GET", "/slots", slots, RunOn::kIo, false, Protocol::kLlama},
    {"GET", "/metrics", metrics, RunOn::kIo, false, Protocol::kLlama},
    {"GET", "/stats", stats, RunOn::kIo},
    {"GET", "/openapi.json", openapi, RunOn::kWorker},
    {"GET", "/health", health, RunOn::kIo, true, Protocol::kLlama},
    {"GET", "/v1/health", health, RunOn::kIo, true, Protocol::kLlama},
};

bool matches(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with('*')) return pattern == path;
  pattern.remove_suffix(1);
  return path.size() > pattern.size() && path.starts_with(pattern);
}

std::string known_routes() {
  std::string list;
  for (const Route& route : kRoutes)
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", route.method, route.path);
  return list;
}

HttpResponse front_page() {
  nlohmann::ordered_json page = {{"name", "mantou"}, {"routes", nlohmann::json::array()}};
  for (const Route& route : kRoutes)
    page["routes"].push_back(fmt::format("{} {}", route.method, route.path));
  return {200, page.dump()};
}

}  // namespace

Protocol protocol_at(std::string_view path) {
  for (const Route& route : kRoutes) {
    if (!path.starts_with(route.path)) continue;
    if (path.size() == route.path.size() || path[route.path.size()] == '/') return route.protocol;
  }
  return Protocol::kOpenAi;
}

RouteResult find_route(std::string_view method, std::string_view path,
                       const std::string& request_id) {
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  std::string allow;
  for (const Route& route : kRoutes) {
    if (!matches(route.path, path)) continue;
    if (route.method == wanted) return {&route, {}};
    allow += fmt::format("{}, {}", route.method, route.method == "GET" ? "HEAD, " : "");
  }
  const ErrorShape shape{protocol_at(path), request_id};
  const bool front = path == "/" || path == "/v1";
  if (front && wanted == "GET") return {nullptr, front_page()};
  if (front) allow = "GET, HEAD, ";
  if (allow.empty() && !(method == "OPTIONS" && path == "*"))
    return {
        nullptr,
        error_response(
            404, fmt::format("nothing is at {}; the routes are {}", path, known_routes()), shape)};
  allow += "OPTIONS";
  RouteResult result;
  if (method == "OPTIONS") {
    result.response.status = 204;
  } else {
    result.response = error_response(
        405, fmt::format("{} does not answer {}, only {}", path, method, allow), shape);
  }
  result.response.headers.emplace_back("Allow", allow);
  return result;
}

}  // namespace mantou::server
