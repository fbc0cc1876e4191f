// Chat messages as the prompt of a generation, how its answer is bound, and the parser of what
// comes of it. Worker threads.
#pragma once

#include "server/completion_sink.h"
#include "server/generation_fields.h"
#include "server/services.h"

namespace mantou::server {

// Binds request.generation to a grammar where a tool must be called, or may be called beside an
// answer by a schema. Errors as ChatTemplate::render's and text::call_grammar's.
Prompt render_chat(const Services& services, ChatRequest& request);

}  // namespace mantou::server
