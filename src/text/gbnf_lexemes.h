// Which parts of a grammar a lexer may take in one piece.
//
// llguidance reads text as llama.cpp's own engine does not: a lexer cuts it into lexemes, always
// the longest that fits, and a parser sees those. The languages are the same only where "longest"
// is never wrong. So the regular parts of the rules are made lexemes, as large as possible, and cut
// into smaller ones wherever the first byte of what may follow one could also continue it or
// another; in the end a lexeme is one character, of which none is longer than another. Used by
// gbnf.cc only.
#pragma once

#include <vector>

#include "text/gbnf_syntax.h"

namespace mantou::text {

struct GbnfPiece {
  enum class Kind { kLexeme, kSequence, kChoice, kRepeat, kRule, kToken };
  Kind kind = Kind::kSequence;
  std::vector<int> children = {};  // pieces
  std::vector<int> run = {};       // kLexeme: regular nodes, one after the other
  int min = 0, max = 0;            // kRepeat
  int rule = 0;                    // kRule
  int node = -1;                   // kToken
};

struct GbnfPieces {
  std::vector<GbnfPiece> pieces;
  std::vector<int> rules;  // of each rule the piece that is its body, -1: not needed
};

// Throws kInvalidArgument where the grammar takes too much work.
GbnfPieces choose_lexemes(const Gbnf& grammar);

}  // namespace mantou::text
