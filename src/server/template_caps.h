// What a chat template can write, as llama-server's /props tells it. A pure function; any thread.
#pragma once

#include "server/json_fields.h"
#include "text/chat_template.h"

namespace mantou::server {

// llama-server's chat_template_caps, found out by rendering a few conversations.
Json template_caps(const text::ChatTemplate& chat_template);

}  // namespace mantou::server
