// llama.cpp's grammar notation (GBNF) as llguidance's Lark.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/token.h"
#include "text/gbnf_syntax.h"

namespace mantou::text {

// What a grammar needs to know of the vocabulary it is for.
struct GbnfTokens {
  TokenLookup id_of;
  std::span<const TokenId> end_ids;  // never among "any token but"
};

// The result describes the same texts. Throws kInvalidArgument, with line and column where there is
// one: wrong syntax, unknown rules or tokens, rules that begin with themselves or can never end,
// grammars beyond the limits (256 KiB, 4096 rules, 128 brackets or 512 levels deep, 10000
// repetitions).
std::string gbnf_to_lark(std::string_view gbnf, const GbnfTokens& tokens);

}  // namespace mantou::text
