// From a parsed request to its answer: queues the generation and writes what comes of it.
//
// start_generation() runs on a worker; the sink it makes lives on the engine thread, turns tokens
// into text, and hands events or the whole reply to the Responder.
#pragma once

#include <memory>
#include <vector>

#include "server/generation_fields.h"
#include "server/http.h"
#include "server/reply_format.h"
#include "server/services.h"

namespace mantou::server {

// Answers at once when the prompt does not fit the context (`prompt_field` is named); throws what
// Engine::open throws. A client that leaves cancels its generation.
void start_generation(const Services& services, const HttpRequest& request,
                      const std::shared_ptr<Responder>& responder, std::vector<TokenId> prompt,
                      const char* prompt_field, GenerationFields fields,
                      std::unique_ptr<ReplyFormat> format);

// The head of an answer by the loaded model.
ReplyHead make_head(const Services& services, const GenerationFields& fields,
                    std::string_view id_prefix);

}  // namespace mantou::server
