// What follows from the rules of a grammar as a whole. Used by gbnf_syntax.cc only.
#pragma once

#include <string_view>

#include "text/gbnf_syntax.h"

namespace mantou::text {

// Throws kInvalidArgument with the line and column of `offset`.
[[noreturn]] void fail_gbnf(std::string_view text, size_t offset, std::string_view what);

// Fills in `order` and the facts about rules, turns rules that start over at their end into loops,
// and throws where a rule begins with itself or can never end.
void check_gbnf(Gbnf& grammar, std::string_view text);

}  // namespace mantou::text
