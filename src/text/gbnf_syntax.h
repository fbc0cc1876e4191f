// GBNF, the grammar notation of llama.cpp, as a tree. Used by gbnf.cc and gbnf_lexemes.cc only.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/token.h"

namespace mantou::text {

// Equal nodes are one, within what was parsed.
struct GbnfNode {
  enum class Kind { kCharacters, kSequence, kChoice, kRepeat, kRule, kToken };
  Kind kind = Kind::kSequence;
  std::vector<int> children = {};  // kSequence (none: the empty text), kChoice, kRepeat (one)
  std::vector<std::pair<char32_t, char32_t>> ranges = {};  // kCharacters
  bool negated = false;                                    // kCharacters, kToken
  int min = 0, max = 0;                                    // kRepeat; max -1: no end
  int rule = 0;                                            // kRule
  TokenId token = -1;                                      // kToken

  auto operator<=>(const GbnfNode&) const = default;
};

struct GbnfRule {
  std::string name;
  int body = -1;      // index of a node; -1 while there is none
  size_t offset = 0;  // in the text, where the name is first seen
  bool nullable = false;
  // Reaches itself other than by starting over at its end; such rules do not describe a regular
  // language.
  bool recursive = false;
  bool regular = false;  // reaches neither recursive rules nor tokens
  bool ends = false;     // describes some text; of a checked grammar every rule does
};

struct Gbnf {
  std::vector<GbnfNode> nodes;  // children come before their parents
  std::vector<GbnfRule> rules;
  int root = 0;
  std::vector<int> order;  // of rules: each after those it refers to, but for circles

  bool is_nullable(int node) const;
  bool is_regular(int node) const;
};

// The id of the token with this text, -1: there is none.
using TokenLookup = std::function<TokenId(std::string_view)>;

// Throws kInvalidArgument with line and column: wrong syntax, unknown rules or tokens, rules that
// begin with themselves or can never end.
Gbnf parse_gbnf(std::string_view text, const TokenLookup& lookup);

}  // namespace mantou::text
