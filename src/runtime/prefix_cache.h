// States of token sequences that later prompts may begin with. A look-up takes nothing away: the
// hit is a fork that shares full blocks with the entry. Least recently used entries make room.
// Owned by the Executor; engine thread.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "base/token.h"
#include "decoding/row_batch.h"

namespace mantou::runtime {

// Tokens that both begin with.
int64_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b);

// Makes one-row states hold their first `left` tokens only; false when one cannot go back so far.
bool cut(decoding::States& states, int64_t tokens, int64_t left);

class PrefixCache {
 public:
  struct Hit {
    int64_t tokens = 0;
    decoding::States states;
  };
  struct Stats {
    size_t entries = 0;
    uint64_t bytes = 0, hits = 0, misses = 0, evicted = 0;
  };

  explicit PrefixCache(uint64_t capacity) : capacity_(capacity) {}

  // The longest usable state of a beginning of the prompt that leaves at least one token to
  // forward and holds more than `least` tokens.
  std::optional<Hit> find(std::span<const TokenId> prompt, int64_t least);
  // As find, without the state: how many tokens a hit would have at most.
  int64_t longest(std::span<const TokenId> prompt) const;

  // Keeps states that hold exactly `tokens`. Entries that begin it and are of no more use go.
  void put(std::vector<TokenId> tokens, decoding::States states);

  Stats stats() const;
  uint64_t capacity() const { return capacity_; }

 private:
  struct Entry {
    std::vector<TokenId> tokens;
    decoding::States states;
    uint64_t bytes = 0;
  };

  void make_room();

  const uint64_t capacity_;
  std::list<Entry> entries_;  // used last first
  uint64_t bytes_ = 0, hits_ = 0, misses_ = 0, evicted_ = 0;
};

}  // namespace mantou::runtime
