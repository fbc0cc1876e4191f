#include <algorithm>

#include "base/utf8.h"
#include "text/tokenizer.h"

namespace mantou::text {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special,
                         std::vector<TokenId> shown)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special), shown_(std::move(shown)) {}

std::string_view Detokenizer::bytes_of(TokenId id) const {
  const bool left_out = skip_special_ && tokenizer_->is_special(id) &&
                        std::find(shown_.begin(), shown_.end(), id) == shown_.end();
  return left_out ? std::string_view() : tokenizer_->bytes_of(id);
}

std::string Detokenizer::push(TokenId id) {
  std::string_view bytes = bytes_of(id);
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
