// Stop sequences across token borders, and the text stream of one generation. One per row, one
// thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace mantou::text {

// Earliest match over all sequences wins; text before it is emitted, the sequence and what follows
// is not; the longest suffix that may still become a sequence is held back.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> sequences);  // empty sequences are refused
  std::string push(std::string_view text);                   // text that may leave now
  std::string flush();                                       // what was held back, at the end
  bool matched() const { return !match_.empty(); }
  const std::string& match() const { return match_; }  // of several at one place the shortest

 private:
  std::vector<std::string> sequences_;
  std::string held_;
  std::string match_;
};

// Tokens in, text out: Detokenizer and StopMatcher together.
class TextStream {
 public:
  // Special tokens are left out but for those in `shown`.
  TextStream(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stops,
             std::vector<TokenId> shown = {});
  std::string push(TokenId id);
  size_t bytes_of(TokenId id) const { return detokenizer_.bytes_of(id).size(); }
  std::string finish();
  bool stopped() const { return matcher_.matched(); }
  const std::string& stop() const { return matcher_.match(); }  // empty: none yet

 private:
  Detokenizer detokenizer_;
  StopMatcher matcher_;
};

}  // namespace mantou::text
