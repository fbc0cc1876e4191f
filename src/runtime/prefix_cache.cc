#include "runtime/prefix_cache.h"

#include <algorithm>
#include <utility>

namespace mantou::runtime {

using decoding::States;

int64_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

bool cut(States& states, int64_t tokens, int64_t left) {
  return std::all_of(states.begin(), states.end(),
                     [&](const auto& state) { return state->trim(0, tokens - left); });
}

std::optional<PrefixCache::Hit> PrefixCache::find(std::span<const TokenId> prompt, int64_t least) {
  struct Candidate {
    int64_t common;
    std::list<Entry>::iterator entry;
  };
  std::vector<Candidate> candidates;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const int64_t common = common_prefix(entry->tokens, prompt.first(prompt.size() - 1));
    if (common > least) candidates.push_back({common, entry});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.common > b.common; });
  for (const Candidate& candidate : candidates) {
    Hit hit{candidate.common, {}};
    for (const auto& state : candidate.entry->states) hit.states.push_back(state->fork(0));
    if (!cut(hit.states, int64_t(candidate.entry->tokens.size()), candidate.common)) continue;
    entries_.splice(entries_.begin(), entries_, candidate.entry);
    hits_++;
    return hit;
  }
  misses_++;
  return std::nullopt;
}

int64_t PrefixCache::longest(std::span<const TokenId> prompt) const {
  int64_t longest = 0;
  for (const Entry& entry : entries_)
    longest = std::max(longest, common_prefix(entry.tokens, prompt));
  return longest;
}

void PrefixCache::put(std::vector<TokenId> tokens, States states) {
  Entry entry{std::move(tokens), std::move(states), 0};
  bool goes_back = true;  // to any of its beginnings
  for (const auto& state : entry.states) {
    entry.bytes += state->bytes(0);
    goes_back = goes_back && state->spec().window == 0;
  }
  std::erase_if(entries_, [&](const Entry& old) {
    const int64_t common = common_prefix(old.tokens, entry.tokens);
    const bool begins_it = common == int64_t(old.tokens.size());
    const bool replaced = begins_it && (goes_back || old.tokens.size() == entry.tokens.size());
    if (replaced) bytes_ -= old.bytes;
    return replaced;
  });
  bytes_ += entry.bytes;
  entries_.push_front(std::move(entry));
  make_room();
}

void PrefixCache::make_room() {
  while (bytes_ > capacity_ && !entries_.empty()) {
    bytes_ -= entries_.back().bytes;
    entries_.pop_back();
    evicted_++;
  }
}

PrefixCache::Stats PrefixCache::stats() const {
  return {entries_.size(), bytes_, hits_, misses_, evicted_};
}

}  // namespace mantou::runtime
