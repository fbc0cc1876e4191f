// A chat request on its way to its answer, for every protocol that has messages: renders the
// prompt, decides how the answer is constrained and taken apart, and queues it. Runs on a worker.
#pragma once

#include <memory>

#include "server/generation_fields.h"
#include "server/http.h"
#include "server/reply_format.h"
#include "server/services.h"

namespace mantou::server {

// Throws what rendering and start_generation throw.
void start_chat(const Services& services, const HttpRequest& http,
                const std::shared_ptr<Responder>& responder, ChatRequest request,
                std::unique_ptr<ReplyFormat> format);

}  // namespace mantou::server
