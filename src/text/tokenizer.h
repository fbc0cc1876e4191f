// Text to token ids and back. Immutable once built and shared between threads.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/token.h"
#include "base/tokenizer_source.h"

namespace mantou::text {

// A half-open range of bytes of a text.
struct ByteRange {
  size_t begin = 0, end = 0;
};

class GrammarVocabulary;

class Tokenizer {
 public:
  // Builds from tokenizer.json or a GGUF vocabulary (quick enough that nothing is cached). Errors
  // name source.tokenizer_origin (or origin) and what is wrong; an unknown `pre` is named beside
  // the known ones.
  static std::shared_ptr<const Tokenizer> build(const TokenizerSource& source);
  virtual ~Tokenizer() = default;

  struct EncodeOptions {
    bool add_special = true;    // BOS/EOS as the checkpoint says; never a second BOS
    bool add_eos = true;        // false: no EOS, whatever the checkpoint says (prompts to continue)
    bool parse_special = true;  // text that spells a special token becomes that token
    // Inside these ranges text that spells a token flagged special stays ordinary text.
    std::span<const ByteRange> literal = {};
  };
  // Any bytes are accepted: invalid UTF-8 sequences are replaced by U+FFFD first.
  virtual std::vector<TokenId> encode(std::string_view text,
                                      const EncodeOptions& options) const = 0;
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special) const = 0;

  virtual int vocab_size() const = 0;                       // highest id + 1
  virtual TokenId id_of(std::string_view token) const = 0;  // -1: no such token
  virtual std::string_view bytes_of(TokenId id) const = 0;  // raw bytes the token stands for
  virtual std::string_view piece_of(TokenId id) const = 0;  // vocabulary text ("Ġthe", "▁the")
  virtual bool is_special(TokenId id) const = 0;
  virtual TokenId bos() const = 0;  // -1: none
  // Decoded text loses one space at its very beginning: SentencePiece puts one before the first
  // word.
  virtual bool drops_leading_space() const { return false; }
  // eos, eot and eom ids of the checkpoint plus, with ends_by_text, the known end texts found in
  // the vocabulary (<|im_end|>, <|eot_id|>, <end_of_turn>, <|endoftext|>, …).
  virtual const std::vector<TokenId>& end_ids() const = 0;

  // Made by the first grammar that asks for it.
  const GrammarVocabulary& grammar_vocabulary() const;

 private:
  mutable std::once_flag grammar_vocabulary_once_;
  mutable std::shared_ptr<const GrammarVocabulary> grammar_vocabulary_;
};

// Token ids to text, one at a time, never half a character: bytes of an incomplete character are
// held back until it is complete or flush() turns them into U+FFFD. One per row.
class Detokenizer {
 public:
  // Special tokens are left out, if `skip_special`, but for those in `shown`.
  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = true,
                       std::vector<TokenId> shown = {});
  std::string push(TokenId id);
  std::string_view bytes_of(TokenId id) const;  // what push takes of it
  std::string flush();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  std::vector<TokenId> shown_;
  bool at_start_ = true;
  std::string pending_;  // the beginning of a character
};

}  // namespace mantou::text
