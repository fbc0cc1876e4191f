#include "server/api_error.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json.h"

namespace mantou::server {
namespace {

using Json = nlohmann::ordered_json;

struct Kind {
  ErrorCode code;
  int status;
  std::string_view type;
  std::string_view name;  // `code` of the JSON; empty: null
};

// kUnsupported is 400, not 501: libraries repeat a request after any 5xx.
constexpr std::array<Kind, 10> kKinds = {{
    {ErrorCode::kInvalidArgument, 400, "invalid_request_error", ""},
    {ErrorCode::kNotFound, 404, "not_found_error", "not_found"},
    {ErrorCode::kUnsupported, 400, "invalid_request_error", "unsupported"},
    {ErrorCode::kCorruptData, 500, "server_error", "corrupt_data"},
    {ErrorCode::kResourceExhausted, 429, "rate_limit_error", "resource_exhausted"},
    {ErrorCode::kCancelled, 499, "cancelled_error", "cancelled"},
    {ErrorCode::kUnavailable, 503, "unavailable_error", "unavailable"},
    {ErrorCode::kNumerical, 500, "server_error", "numerical_error"},
    {ErrorCode::kIo, 500, "server_error", "io_error"},
    {ErrorCode::kInternal, 500, "server_error", "internal_error"},
}};

const Kind& kind_of(ErrorCode code) {
  for (const Kind& kind : kKinds) {
    if (kind.code == code) return kind;
  }
  return kKinds.back();
}

Json null_if_empty(std::string_view text) { return text.empty() ? Json(nullptr) : Json(text); }

Json envelope(std::string_view message, std::string_view type, std::string_view param,
              std::string_view code) {
  Json inner;
  inner["message"] = message;
  inner["type"] = type;
  inner["param"] = null_if_empty(param);
  inner["code"] = null_if_empty(code);
  Json outer;
  outer["error"] = std::move(inner);
  return outer;
}

Json to_json(const Error& error) {
  const Kind& kind = kind_of(error.code());
  return envelope(error.message(), kind.type, error.param(), kind.name);
}

}  // namespace

HttpResponse error_response(const Error& error) {
  HttpResponse response{kind_of(error.code()).status, to_text(to_json(error))};
  if (response.status == 429 || response.status == 503)
    response.headers.emplace_back("Retry-After", "1");
  return response;
}

HttpResponse error_response(int status, const std::string& message) {
  const std::string_view type = status == 401   ? "authentication_error"
                                : status == 404 ? "not_found_error"
                                : status < 500  ? "invalid_request_error"
                                                : "server_error";
  return {status, to_text(envelope(message, type, "", ""))};
}

HttpResponse context_length_error(const std::string& param, int64_t prompt_tokens,
                                  int64_t context) {
  Json json = envelope(
      fmt::format("The prompt has {} tokens, but the context holds {} (prompt and answer "
                  "together). Shorten the prompt, or start the server with a larger context.",
                  prompt_tokens, context),
      "invalid_request_error", param, "context_length_exceeded");
  json["error"]["n_prompt_tokens"] = prompt_tokens;
  json["error"]["n_ctx"] = context;
  return {400, to_text(json)};
}

HttpResponse admission_error(const Error& error) {
  return {400, to_text(envelope(error.message(), "invalid_request_error", error.param(),
                                "context_over_budget"))};
}

std::string error_json(const Error& error) { return to_text(to_json(error)); }

}  // namespace mantou::server
