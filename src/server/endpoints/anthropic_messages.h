// The conversation of a request of Anthropic's as OpenAI messages. Pure; any thread.
#pragma once

#include "server/json_fields.h"

namespace mantou::server {

// From `system` and `messages`, at least one message. The system prompt goes in front. Messages of
// one role that follow each other become one, as they do there; of a user's turn the results of
// tools come first, then the text. Errors name the block: "messages[2].content[0].type".
Json openai_messages(const Fields& fields);

}  // namespace mantou::server
