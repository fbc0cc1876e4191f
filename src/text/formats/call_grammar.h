// The grammar of answers that call tools, with arguments by the tools' schemas, and the format in
// which they are read. Pure functions; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "text/formats/formats.h"
#include "text/tokenizer.h"

namespace mantou::text {

struct CallGrammar {
  std::string lark;
  OutputFormat format;  // for make_output_parser
};

struct CallRules {
  bool several = true;                                   // more than one call may be made
  std::optional<nlohmann::ordered_json> or_answer = {};  // a schema: or an answer like this
};

// Calls as the model writes them, where its format is JSON; in plain JSON otherwise. `tools`: an
// array of OpenAI tools, all of which may be called. kInvalidArgument, param "tools": there is none
// that could be called. Nothing: calls in this format could not be told from an answer.
std::optional<CallGrammar> call_grammar(const OutputFormat& format,
                                        const nlohmann::ordered_json& tools, const CallRules& rules,
                                        const Tokenizer& tokenizer);

}  // namespace mantou::text
