// A row's place in the grammar that its answer must follow. Owned by the row; engine thread. The
// mask for a token is begun on another thread as soon as the token before it is known.
#pragma once

#include <future>
#include <memory>
#include <span>
#include <vector>

#include "decoding/mask_worker.h"
#include "engine/request.h"
#include "text/grammar.h"

namespace mantou::decoding {

class RowGrammar {
 public:
  // `worker` outlives this.
  RowGrammar(const Constraint& constraint, int vocab_size, MaskWorker& worker);

  // Whether the next token is bound by the grammar.
  bool binds() const { return place_ != nullptr; }
  // The tokens that may come next, for Sampler::sample; empty while it does not bind. Throws
  // what GrammarMatcher::mask does: the row ends.
  std::span<const uint32_t> allowed();
  // The row's next token, after `history`. True: the answer is complete.
  bool commit(std::span<const TokenId> history, TokenId token);

 private:
  struct Place {
    text::GrammarMatcher matcher;
    std::vector<uint32_t> mask;  // after the last token
  };
  void begin();
  void look_ahead();
  void wait();

  const Constraint constraint_;
  const size_t mask_words_;
  MaskWorker& worker_;
  std::shared_ptr<Place> place_;  // the worker's while masking_ is valid
  std::future<void> masking_;
};

}  // namespace mantou::decoding
