// What the tests of grammars share: a small byte-level vocabulary and texts fed token by token.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar.h"
#include "text/text_goldens.h"

namespace mantou::text {

// All bytes, some longer tokens, 5 special ones, of which <|im_end|> and <|endoftext|> are ends.
inline const Tokenizer& small_tokenizer() {
  static const std::shared_ptr<const Tokenizer> tokenizer = [] {
    TokenizerSource source;
    source.origin = "tokenizer.json";
    source.tokenizer_json = kByteLevelJson;
    return Tokenizer::build(source);
  }();
  return *tokenizer;
}

using Mask = std::vector<uint32_t>;

inline Mask mask_of(GrammarMatcher& matcher, const Tokenizer& tokenizer) {
  Mask words((size_t(tokenizer.vocab_size()) + 31) / 32);
  matcher.mask(words);
  return words;
}

inline bool has(const Mask& mask, TokenId id) { return mask[size_t(id) / 32] >> (id % 32) & 1; }

inline bool has_an_end(const Mask& mask, const Tokenizer& tokenizer) {
  const std::vector<TokenId>& ends = tokenizer.end_ids();
  return std::any_of(ends.begin(), ends.end(), [&](TokenId id) { return has(mask, id); });
}

inline std::vector<TokenId> plain_ids(std::string_view text, const Tokenizer& tokenizer) {
  return tokenizer.encode(text, {.add_special = false, .parse_special = false});
}

// Whether `text` can be written token by token and be the end of it. That mask, commit and the ends
// agree is checked on the way.
inline bool accepts(const Grammar& grammar, std::string_view text,
                    const Tokenizer& tokenizer = small_tokenizer()) {
  GrammarMatcher matcher(grammar);
  for (const TokenId id : plain_ids(text, tokenizer)) {
    const Mask mask = mask_of(matcher, tokenizer);
    EXPECT_EQ(has_an_end(mask, tokenizer), matcher.is_accepting());
    const bool allowed = has(mask, id);
    EXPECT_EQ(matcher.commit(id), allowed) << text << ", token " << id;
    if (!allowed) return false;
  }
  const bool accepting = matcher.is_accepting();
  EXPECT_EQ(has_an_end(mask_of(matcher, tokenizer), tokenizer), accepting);
  return accepting;
}

// A text of random allowed tokens, hurried to its end after `hurry` of them; empty when there is
// none after ten times as many.
inline std::string random_text(const Grammar& grammar, std::mt19937& random, size_t hurry = 40) {
  const Tokenizer& tokenizer = small_tokenizer();
  GrammarMatcher matcher(grammar);
  std::string text;
  for (size_t step = 0; step < 10 * hurry; ++step) {
    const Mask mask = mask_of(matcher, tokenizer);
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < tokenizer.vocab_size(); ++id)
      if (has(mask, id)) allowed.push_back(id);
    const bool may_end = has_an_end(mask, tokenizer);
    if (may_end && (step >= hurry || random() % 4 == 0)) return text;
    TokenId id = allowed[random() % allowed.size()];
    if (step >= hurry) {
      for (const char* closer : {"}", "]", "\""}) {
        const TokenId token = tokenizer.id_of(closer);
        if (has(mask, token)) id = token;
      }
    }
    EXPECT_TRUE(matcher.commit(id)) << text << ", token " << id;
    if (matcher.is_stopped() && !has(mask, id)) return "";
    const std::vector<TokenId>& ends = tokenizer.end_ids();
    if (std::find(ends.begin(), ends.end(), id) != ends.end()) return text;
    text += tokenizer.bytes_of(id);
  }
  return "";
}

}  // namespace mantou::text
