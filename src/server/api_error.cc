#include "server/api_error.h"

#include <array>
#include <exception>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/log.h"

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

// What there is to say, of which each protocol takes what it has a place for.
struct Facts {
  int status;
  std::string_view message;
  std::string_view type;  // OpenAI's; others name it by the status
  std::string_view param = {};
  std::string_view code = {};
  Json numbers = Json::object();  // further fields of OpenAI's
};

Json openai_json(const Facts& facts) {
  Json inner;
  inner["message"] = facts.message;
  inner["type"] = facts.type;
  inner["param"] = null_if_empty(facts.param);
  inner["code"] = null_if_empty(facts.code);
  inner.update(facts.numbers);
  return {{"error", std::move(inner)}};
}

std::string_view anthropic_type(int status) {
  constexpr std::pair<int, std::string_view> kTypes[] = {
      {401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
      {413, "request_too_large"},    {429, "rate_limit_error"}, {503, "overloaded_error"}};
  for (const auto& [known, type] : kTypes)
    if (known == status) return type;
  return status < 500 ? "invalid_request_error" : "api_error";
}

Json anthropic_json(const Facts& facts, const std::string& request_id) {
  return {{"type", "error"},
          {"error", {{"type", anthropic_type(facts.status)}, {"message", facts.message}}},
          {"request_id", null_if_empty(request_id)}};
}

// llama-server's types are OpenAI's, but for a prompt that is too long.
Json llama_json(const Facts& facts) {
  const bool too_long = facts.code == "context_length_exceeded";
  Json inner = {{"code", facts.status},
                {"message", facts.message},
                {"type", too_long ? "exceed_context_size_error" : facts.type}};
  if (!facts.param.empty()) inner["param"] = facts.param;
  inner.update(facts.numbers);
  return {{"error", std::move(inner)}};
}

Json to_json(const Facts& facts, const ErrorShape& shape) {
  switch (shape.protocol) {
    case Protocol::kAnthropic:
      return anthropic_json(facts, shape.request_id);
    case Protocol::kLlama:
      return llama_json(facts);
    case Protocol::kOpenAi:
      break;
  }
  return openai_json(facts);
}

Facts facts_of(const Error& error) {
  const Kind& kind = kind_of(error.code());
  return {kind.status, error.message(), kind.type, error.param(), kind.name};
}

HttpResponse respond(int status, const Json& json) {
  HttpResponse response{status, to_text(json)};
  if (status == 429 || status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

}  // namespace

HttpResponse error_response(const Error& error, const ErrorShape& shape) {
  const Facts facts = facts_of(error);
  return respond(facts.status, to_json(facts, shape));
}

HttpResponse error_response(int status, const std::string& message, const ErrorShape& shape) {
  const std::string_view type = status == 401   ? "authentication_error"
                                : status == 404 ? "not_found_error"
                                : status < 500  ? "invalid_request_error"
                                                : "server_error";
  return {status, to_text(to_json({status, message, type}, shape))};
}

// Clients of Anthropic's shorten the conversation when the message begins with that API's words.
HttpResponse context_length_error(const TooLong& prompt, const ErrorShape& shape) {
  const bool memory = prompt.room < prompt.context;
  const std::string_view what = memory ? "memory for keys and values" : "context";
  const std::string_view advice =
      memory
          ? "Shorten the prompt, or start the server with more --kv-memory or quantized keys and "
            "values (--kv-quant 8)."
          : "Shorten the prompt, or start the server with a larger context.";
  const std::string message =
      shape.protocol == Protocol::kAnthropic
          ? fmt::format(
                "prompt is too long: {} tokens > {} maximum (what the {} holds, prompt and "
                "answer together). {}",
                prompt.prompt_tokens, prompt.room, what, advice)
          : fmt::format(
                "The prompt has {} tokens, but the {} holds {} (prompt and answer "
                "together). {}",
                prompt.prompt_tokens, what, prompt.room, advice);
  const Facts facts{400,
                    message,
                    "invalid_request_error",
                    prompt.param,
                    "context_length_exceeded",
                    {{"n_prompt_tokens", prompt.prompt_tokens}, {"n_ctx", prompt.room}}};
  return {400, to_text(to_json(facts, shape))};
}

HttpResponse admission_error(const Error& error, const ErrorShape& shape) {
  const Facts facts{400, error.message(), "invalid_request_error", error.param(),
                    "context_over_budget"};
  return {400, to_text(to_json(facts, shape))};
}

HttpResponse loading_error(const ErrorShape& shape) {
  Json json = to_json({503, "Loading model", "unavailable_error", "", "loading"}, shape);
  json["status"] = "loading model";
  return respond(503, json);
}

std::string error_json(const Error& error, const ErrorShape& shape) {
  return to_text(to_json(facts_of(error), shape));
}

void answer_errors(const std::shared_ptr<Responder>& responder, const ErrorShape& shape,
                   const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    log_info("refused", {{"id", shape.request_id}, {"error", error.message()}});
    responder->send(error_response(error, shape));
  } catch (const std::bad_alloc&) {
    responder->send(error_response(Error(ErrorCode::kUnavailable, "out of memory"), shape));
  } catch (const std::exception& other) {
    log_error("endpoint", {{"id", shape.request_id}, {"error", other.what()}});
    responder->send(error_response(Error(ErrorCode::kInternal, "unexpected failure"), shape));
  }
}

}  // namespace mantou::server
