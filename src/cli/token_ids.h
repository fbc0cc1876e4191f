// Token ids as people and scripts write them: numbers between spaces, commas and newlines, in one
// pair of brackets or in none. JSON arrays are such text. Pure function; any thread.
#pragma once

#include <string_view>
#include <vector>

#include "base/token.h"

namespace mantou::cli {

// kInvalidArgument naming --ids and the word that is no id of 0 … vocab_size - 1.
std::vector<TokenId> parse_ids(std::string_view input, int vocab_size);

}  // namespace mantou::cli
