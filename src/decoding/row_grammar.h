// A row's place in the grammar that its answer must follow. Owned by the row; engine thread.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/request.h"
#include "text/grammar.h"

namespace mantou::decoding {

class RowGrammar {
 public:
  RowGrammar(const Constraint& constraint, int vocab_size);

  // Whether the next token is bound by the grammar.
  bool binds() const { return matcher_.has_value(); }
  // The tokens that may come next, for Sampler::sample; empty while it does not bind. Throws
  // kResourceExhausted: the row ends.
  std::span<const uint32_t> allowed();
  // The row's next token, after `history`. True: the answer is complete.
  bool commit(std::span<const TokenId> history, TokenId token);

 private:
  const Constraint constraint_;
  std::optional<text::GrammarMatcher> matcher_;
  std::vector<uint32_t> mask_;
};

}  // namespace mantou::decoding
