// Against a list of everything that was ever put, with states that only count tokens.
#include "runtime/prefix_cache.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"

namespace mantou::runtime {
namespace {

using Tokens = std::vector<TokenId>;

// A row of `tokens` tokens that costs a byte each; a sliding one goes back while it is not full.
class Counted final : public LayerState {
 public:
  Counted(int64_t tokens, int64_t window) : spec_{1, 8, window}, tokens_(tokens) {}
  const StateSpec& spec() const override { return spec_; }
  int rows() const override { return 1; }
  int64_t tokens(int) const override { return tokens_; }
  size_t bytes(int) const override { return size_t(tokens_); }
  size_t projected_bytes(int64_t tokens) const override { return size_t(tokens); }
  int64_t append_limit(int) const override { return 1; }
  void add_row() override { refuse(); }
  void join(LayerState&&) override { refuse(); }
  void keep(std::span<const int>) override { refuse(); }
  std::unique_ptr<LayerState> fork(int) const override {
    return std::make_unique<Counted>(tokens_, spec_.window);
  }
  bool trim(int, int64_t drop) override {
    if (drop > 0 && spec_.window > 0 && tokens_ > spec_.window) return false;
    tokens_ -= drop;
    return true;
  }
  void begin_step(const StepLayout&) override { refuse(); }
  void commit_step() override { refuse(); }
  void abort_step() override { refuse(); }
  void begin_round() override { refuse(); }
  void end_round(std::span<const int64_t>) override { refuse(); }
  Snapshot snapshot(int) const override { refuse(); }
  void restore(int, const Snapshot&) override { refuse(); }

 private:
  [[noreturn]] static void refuse() { fail(ErrorCode::kInternal, "not part of this test"); }

  StateSpec spec_;
  int64_t tokens_;
};

decoding::States states_of(int64_t tokens, int64_t window = 0) {
  decoding::States states;
  states.push_back(std::make_unique<Counted>(tokens, 0));
  if (window > 0) states.push_back(std::make_unique<Counted>(tokens, window));
  return states;
}

TEST(PrefixCache, AHitIsTheLongestUsableBeginningAndStays) {
  PrefixCache cache(1000);
  cache.put({1, 2, 3, 4, 5, 6}, states_of(6));
  cache.put({1, 2, 9, 9}, states_of(4));
  for (int i = 0; i < 2; i++) {
    const auto hit = cache.find(Tokens{1, 2, 3, 4, 7, 7}, 0);
    ASSERT_TRUE(hit);
    EXPECT_EQ(hit->tokens, 4);
    EXPECT_EQ(hit->states[0]->tokens(0), 4);
  }
  EXPECT_EQ(cache.find(Tokens{1, 2, 3, 4, 5, 6}, 0)->tokens, 5);  // one is left to forward
  EXPECT_EQ(cache.longest(Tokens{1, 2, 3, 4, 5, 6}), 6);
  EXPECT_FALSE(cache.find(Tokens{1, 2, 3, 4, 7}, 4));
  EXPECT_FALSE(cache.find(Tokens{5, 1, 2, 3}, 0));
  EXPECT_FALSE(cache.find(Tokens{1}, 0));
}

TEST(PrefixCache, WhereNoWayLeadsBackTheNextBestIsTaken) {
  PrefixCache cache(1000);
  cache.put({1, 2, 3}, states_of(3, 4));
  cache.put({1, 2, 3, 4, 5, 6}, states_of(6, 4));  // its ring is full
  EXPECT_EQ(cache.find(Tokens{1, 2, 3, 4, 5, 9}, 0)->tokens, 3);
  EXPECT_EQ(cache.find(Tokens{1, 2, 3, 4, 5, 6, 7}, 0)->tokens, 6);
  EXPECT_EQ(cache.find(Tokens{1, 2, 8}, 0)->tokens, 2);
}

TEST(PrefixCache, ALongerEntryReplacesItsBeginnings) {
  PrefixCache cache(1000);
  cache.put({1, 2}, states_of(2));
  cache.put({1, 3}, states_of(2));
  cache.put({1, 2, 3}, states_of(3));
  EXPECT_EQ(cache.stats().entries, 2u);
  EXPECT_EQ(cache.stats().bytes, 5u);
  cache.put({1, 2, 3, 4, 5, 6}, states_of(6, 4));  // cannot serve what its beginnings serve
  EXPECT_EQ(cache.stats().entries, 3u);
  cache.put({1, 2, 3, 4, 5, 6}, states_of(6, 4));
  EXPECT_EQ(cache.stats().entries, 3u);
}

TEST(PrefixCacheProperties, EqualsAListOfWhatWasPut) {
  struct Entry {
    Tokens tokens;
    int used;
  };
  std::mt19937 random(11);
  for (int round = 0; round < 300; round++) {
    const uint64_t capacity = 20 + random() % 200;
    PrefixCache cache(capacity);
    std::vector<Entry> model;
    const auto held = [&] {
      uint64_t bytes = 0;
      for (const Entry& e : model) bytes += e.tokens.size();
      return bytes;
    };
    for (int time = 0; time < 60; time++) {
      Tokens tokens(1 + random() % 30);
      for (TokenId& t : tokens) t = TokenId(random() % 8 == 0);
      if (random() % 2) {
        cache.put(tokens, states_of(int64_t(tokens.size())));
        std::erase_if(model, [&](const Entry& e) {
          return common_prefix(e.tokens, tokens) == int64_t(e.tokens.size());
        });
        model.push_back({tokens, time});
        while (held() > capacity)
          model.erase(
              std::min_element(model.begin(), model.end(),
                               [](const auto& a, const auto& b) { return a.used < b.used; }));
      } else {
        Entry* best = nullptr;
        int64_t longest = 0;
        for (Entry& e : model) {
          const int64_t common =
              std::min<int64_t>(common_prefix(e.tokens, tokens), int64_t(tokens.size()) - 1);
          if (common < longest || common == 0) continue;
          if (common == longest && best->used > e.used) continue;  // the last used among equals
          longest = common;
          best = &e;
        }
        const auto hit = cache.find(tokens, 0);
        ASSERT_EQ(hit.has_value(), best != nullptr);
        if (!hit) continue;
        ASSERT_EQ(hit->tokens, longest);
        ASSERT_EQ(hit->states[0]->tokens(0), longest);
        best->used = time;
      }
      ASSERT_EQ(cache.stats().bytes, held());
      ASSERT_LE(cache.stats().bytes, capacity);
      ASSERT_EQ(cache.stats().entries, model.size());
    }
  }
}

}  // namespace
}  // namespace mantou::runtime
