// Keeps special tokens that users write apart from those that a template writes.
//
// Before rendering, a mark (a private-use character the conversation does not contain) goes behind
// the first character of each special token's text in what users and tools said. Templates carry it
// along. After rendering the marks come out again, and where they were the text is literal.
// Immutable.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "text/tokenizer.h"

namespace mantou::text {

class SpecialMarks {
 public:
  explicit SpecialMarks(const Tokenizer& tokenizer);

  // A character that occurs nowhere in `text`, neither as itself nor as JSON's \uXXXX.
  static std::string choose(std::string_view text);

  std::string marked(std::string_view content, std::string_view mark) const;

  struct Unmarked {
    std::string text;
    std::vector<ByteRange> literal;
  };
  Unmarked unmarked(std::string_view rendered, std::string_view mark) const;

 private:
  // The length of the longest special token's text at the start of `text`; 0: none starts so.
  size_t match(std::string_view text) const;

  std::unordered_set<std::string_view> texts_;  // in the tokenizer, which the owner keeps
  std::vector<size_t> lengths_;                 // of the texts, longest first
  bool first_bytes_[256] = {};
};

}  // namespace mantou::text
