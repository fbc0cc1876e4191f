// Errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}}, with a status that
// tells a client's library truthfully whether trying again can help (429 and 5xx are retried). Any
// thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "server/http.h"

namespace mantou::server {

HttpResponse error_response(const Error& error);
// For what the transport or the router refuses.
HttpResponse error_response(int status, const std::string& message);
// The prompt alone fills the context: says both numbers, also as n_prompt_tokens and n_ctx.
HttpResponse context_length_error(const std::string& param, int64_t prompt_tokens, int64_t context);
// No room for the request's state: trying again unchanged would not help.
HttpResponse admission_error(const Error& error);

// The same JSON, for an event of a stream.
std::string error_json(const Error& error);

}  // namespace mantou::server
