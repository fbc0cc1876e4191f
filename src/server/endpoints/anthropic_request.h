// Requests of Anthropic's Messages API as what the chat endpoint works with: messages, tools and
// options in OpenAI's form, which chat templates know. Pure functions; any thread.
#pragma once

#include <string_view>

#include "server/generation_fields.h"
#include "server/json_fields.h"
#include "server/services.h"

namespace mantou::server {

struct MessagesRequest {
  ChatRequest chat;
  bool omits_thinking = false;  // thinking.display "omitted": blocks without their text
};

enum class MaxTokens { kRequired, kUnused };

// Errors (kInvalidArgument, kUnsupported) name the field. What only means something at Anthropic's
// (cache_control, metadata, tools that run there and the blocks they left) is passed over.
MessagesRequest parse_messages_request(std::string_view body, const RequestDefaults& defaults,
                                       int vocab_size, MaxTokens max_tokens);

}  // namespace mantou::server
