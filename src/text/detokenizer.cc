#include "base/utf8.h"
#include "text/tokenizer.h"

namespace mantou::text {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

std::string Detokenizer::push(TokenId id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  std::string_view bytes = tokenizer_->bytes_of(id);
  if (bytes.empty()) return {};
  if (at_start_ && tokenizer_->drops_leading_space() && bytes.starts_with(' '))
    bytes.remove_prefix(1);
  at_start_ = false;
  pending_ += bytes;
  return take_characters(pending_);
}

std::string Detokenizer::flush() {
  const bool unfinished = !pending_.empty();
  pending_.clear();
  return std::string(unfinished ? kReplacement : "");
}

}  // namespace mantou::text
