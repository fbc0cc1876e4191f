// Errors in the shape of the protocol that asked, with a status that tells a client's library
// truthfully whether trying again can help (429 and 5xx are retried). Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "server/http.h"

namespace mantou::server {

enum class Protocol {
  kOpenAi,     // {"error": {"message", "type", "param", "code"}}
  kAnthropic,  // {"type": "error", "error": {"type", "message"}, "request_id"}
  kLlama,      // {"error": {"code", "message", "type"}}, the code is the status
};

// What decides how an error to a request is written down.
struct ErrorShape {
  Protocol protocol = Protocol::kOpenAi;
  std::string request_id = {};
};

HttpResponse error_response(const Error& error, const ErrorShape& shape = {});
// For what the transport or the router refuses.
HttpResponse error_response(int status, const std::string& message, const ErrorShape& shape = {});
// The prompt alone fills the context, or as much of it as there is memory for.
struct TooLong {
  std::string param;  // the prompt's field
  int64_t prompt_tokens, room;
  int64_t context;  // more than `room`: the memory is what binds
};
// Says the numbers, to OpenAI's clients also as n_prompt_tokens and n_ctx.
HttpResponse context_length_error(const TooLong& prompt, const ErrorShape& shape = {});
// No room for the request's state: trying again unchanged would not help.
HttpResponse admission_error(const Error& error, const ErrorShape& shape = {});
// The model is not there yet; llama-server's "status", which load balancers look at, is with it.
HttpResponse loading_error(const ErrorShape& shape);

// The same JSON, for an event of a stream.
std::string error_json(const Error& error, const ErrorShape& shape = {});

// Does `work`, which answers a request; what it throws becomes the answer.
void answer_errors(const std::shared_ptr<Responder>& responder, const ErrorShape& shape,
                   const std::function<void()>& work);

}  // namespace mantou::server
