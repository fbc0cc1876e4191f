// The fields that ask for structured output, under the names of OpenAI, vLLM and llama-server. Pure
// functions; any thread.
#pragma once

#include <optional>

#include "server/json_fields.h"
#include "text/grammar.h"

namespace mantou::server {

// What the request asks for; nothing: any text. Errors (kInvalidArgument, kUnsupported) name the
// field; two fields that ask for different things are an error.
std::optional<text::GrammarSource> read_grammar(const Fields& fields);

}  // namespace mantou::server
