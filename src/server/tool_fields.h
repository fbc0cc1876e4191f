// The fields about tools: which there are, which may be called, and whether one must be. Pure
// functions; any thread.
#pragma once

#include "server/generation_fields.h"

namespace mantou::server {

// tools, tool_choice and parallel_tool_calls. Errors (kInvalidArgument) name the field.
void read_tools(const Fields& fields, ChatRequest& request);

}  // namespace mantou::server
