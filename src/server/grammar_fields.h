// The fields that ask for structured output, under the names of OpenAI, vLLM and llama-server. Pure
// functions; any thread.
#pragma once

#include <optional>
#include <string>

#include "server/json_fields.h"
#include "text/grammar.h"

namespace mantou::server {

struct GrammarField {
  text::GrammarSource source;
  std::string field;  // that asked for it
};

// What the request asks for; nothing: any text. Errors (kInvalidArgument, kUnsupported) name the
// field; two fields that ask for different things are an error.
std::optional<GrammarField> read_grammar(const Fields& fields);

// Takes another field's wish into what `all` found so far; kInvalidArgument when they differ.
void add_grammar(GrammarField wanted, std::optional<GrammarField>& all);

}  // namespace mantou::server
