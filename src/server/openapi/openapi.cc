#include "server/openapi/openapi.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "server/api_error.h"
#include "server/openapi/schema.h"
#include "server/router.h"

namespace mantou::server {
namespace {

// One route; schemas by their names in components/schemas.
struct Operation {
  std::string_view method, path, id, summary;
  std::string_view request = {};
  std::string_view reply = {};   // empty: a text
  std::string_view events = {};  // what a stream's data are; empty: there are no streams
};

constexpr std::string_view kOpenAiEvents =
    "data: the object of the answer with what came, and at the end [DONE]";
constexpr std::string_view kAnthropicEvents =
    "message_start, content_block_start, content_block_delta, content_block_stop, message_delta, "
    "message_stop, ping and error";
constexpr std::string_view kLlamaEvents =
    "data: the object of the answer with what came, the last with \"stop\": true";

constexpr Operation kOperations[] = {
    {"POST", "/v1/chat/completions", "chat", "Answers a chat, in OpenAI's form.",
     "ChatCompletionRequest", "ChatCompletion", kOpenAiEvents},
    {"POST", "/chat/completions", "chat_without_version", "The same as /v1/chat/completions.",
     "ChatCompletionRequest", "ChatCompletion", kOpenAiEvents},
    {"POST", "/v1/completions", "complete", "Continues prompts, in OpenAI's form.",
     "CompletionRequest", "Completion", kOpenAiEvents},
    {"POST", "/v1/messages", "message", "Answers a chat, in Anthropic's form.", "MessagesRequest",
     "Message", kAnthropicEvents},
    {"POST", "/v1/messages/count_tokens", "count_tokens",
     "How many tokens the prompt of such a chat has.", "CountTokensRequest", "TokenCount"},
    {"GET", "/v1/models", "models", "The model that is served.", "", "ModelList"},
    {"GET", "/v1/models/*", "model", "The model of this id.", "", "Model"},
    {"POST", "/completion", "llama_completion", "Continues a prompt, in llama-server's form.",
     "LlamaCompletionRequest", "LlamaCompletion", kLlamaEvents},
    {"POST", "/completions", "llama_completions", "The same as /completion.",
     "LlamaCompletionRequest", "LlamaCompletion", kLlamaEvents},
    {"POST", "/tokenize", "tokenize", "The tokens of a text.", "TokenizeRequest", "Tokens"},
    {"POST", "/detokenize", "detokenize", "The text of tokens.", "DetokenizeRequest", "Content"},
    {"POST", "/apply-template", "apply_template", "The prompt that a chat becomes.",
     "ChatCompletionRequest", "PromptText"},
    {"GET", "/props", "props", "What is served, as llama-server tells it.", "", "Props"},
    {"GET", "/slots", "slots", "What each row does, as llama-server tells it.", "", "Slots"},
    {"GET", "/metrics", "metrics", "Counters for Prometheus."},
    {"GET", "/stats", "stats", "Counters, and what runs now.", "", "Stats"},
    {"GET", "/openapi.json", "openapi", "This document.", "", "Document"},
    {"GET", "/health", "health", "200 when the server is ready.", "", "Health"},
    {"GET", "/v1/health", "health_v1", "The same as /health.", "", "Health"},
};

Json content(std::string_view type, Json schema) {
  return {{std::string(type), {{"schema", std::move(schema)}}}};
}

std::string_view error_of(Protocol protocol) {
  switch (protocol) {
    case Protocol::kAnthropic:
      return "AnthropicError";
    case Protocol::kLlama:
      return "LlamaError";
    case Protocol::kOpenAi:
      break;
  }
  return "OpenAiError";
}

Json response(std::string_view description, Json content) {
  return {{"description", description},
          {"headers", {{"x-request-id", {{"$ref", "#/components/headers/RequestId"}}}}},
          {"content", std::move(content)}};
}

Json responses_of(const Operation& operation, Protocol protocol) {
  const Json error = content("application/json", schema::ref(error_of(protocol)));
  Json answer =
      response("The answer.", operation.reply.empty()
                                  ? content("text/plain", schema::text())
                                  : content("application/json", schema::ref(operation.reply)));
  if (!operation.events.empty()) {
    answer["content"]["text/event-stream"] = Json::object();
    answer["description"] = fmt::format("The answer. As a stream: {}.", operation.events);
  }
  return {{"200", std::move(answer)},
          {"4XX", response("The request is at fault.", error)},
          {"5XX", response("The server or the model is at fault, or not ready.", error)}};
}

Json parameter(const char* name, const char* place, const char* description) {
  return {{"name", name},
          {"in", place},
          {"required", std::string_view(place) == "path"},
          {"description", description},
          {"schema", schema::text()}};
}

Json operation_json(const Operation& operation) {
  const Route* route = find_route(operation.method, operation.path).route;
  if (route == nullptr) fail(ErrorCode::kInternal, "no route at {}", operation.path);
  Json json = {{"operationId", operation.id}, {"summary", operation.summary}};
  if (operation.path.ends_with("/*"))
    json["parameters"] =
        Json::array({parameter("id", "path", "its slashes may be written as %2F")});
  if (operation.id == "slots")
    json["parameters"] =
        Json::array({parameter("fail_on_no_slot", "query", "anything: 503 when no slot is free")});
  if (!operation.request.empty())
    json["requestBody"] = {
        {"required", true},
        {"content", content("application/json", schema::ref(operation.request))}};
  json["responses"] = responses_of(operation, route->protocol);
  if (route->open) json["security"] = Json::array();
  return json;
}

std::string path_template(std::string_view path) {
  if (!path.ends_with('*')) return std::string(path);
  return std::string(path.substr(0, path.size() - 1)) + "{id}";
}

}  // namespace

Json openapi_document(const std::string& version, int vocab_size) {
  Json paths = Json::object();
  for (const Operation& operation : kOperations) {
    const char* method = operation.method == "POST" ? "post" : "get";
    paths[path_template(operation.path)][method] = operation_json(operation);
  }
  Json schemas = request_schemas(vocab_size);
  schemas.update(reply_schemas());
  return {
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "mantou"},
        {"version", version},
        {"description",
         "Requests may have other fields, which are ignored unless ignoring them would change "
         "the answer's meaning. Keys are only asked for when the server was started with some."}}},
      {"security", Json::array({{{"bearer", Json::array()}}, {{"apiKey", Json::array()}}})},
      {"paths", std::move(paths)},
      {"components",
       {{"securitySchemes",
         {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}},
          {"apiKey", {{"type", "apiKey"}, {"in", "header"}, {"name", "x-api-key"}}}}},
        {"headers",
         {{"RequestId",
           {{"description", "the client's own, or a new one"},
            {"required", true},
            {"schema", schema::text()}}}}},
        {"schemas", std::move(schemas)}}}};
}

}  // namespace mantou::server
