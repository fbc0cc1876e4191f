// Chat messages as the prompt of a generation and the parser of what comes of it. Worker threads.
#pragma once

#include "server/completion_sink.h"
#include "server/generation_fields.h"
#include "server/services.h"

namespace mantou::server {

// Errors as ChatTemplate::render's.
Prompt render_chat(const Services& services, const Json& messages, const text::ChatOptions& chat);

}  // namespace mantou::server
