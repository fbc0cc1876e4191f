// The automaton of one lexeme (Glushkov's: a state for every character class in it), over the first
// bytes of characters. Used by gbnf_lexemes.cc only.
#pragma once

#include <bitset>
#include <vector>

#include "text/gbnf_syntax.h"

namespace mantou::text {

// First bytes of characters in UTF-8.
using ByteSet = std::bitset<256>;

struct GbnfAutomaton {
  struct State {
    ByteSet bytes = {};          // that lead to it
    std::vector<int> next = {};  // states that may follow
    ByteSet onward = {};         // bytes that lead on
    int element = 0;             // of the lexeme, which of its nodes the state is in
    bool final = false;
  };
  std::vector<State> states;
  std::vector<int> begin;
  ByteSet first;  // bytes of `begin`
  bool nullable = false;
  bool too_large = false;  // not worked out
};

// Repetitions with an end count as if they had none, which makes it accept too much, never too
// little.
GbnfAutomaton make_automaton(const Gbnf& grammar, const std::vector<int>& run);

}  // namespace mantou::text
