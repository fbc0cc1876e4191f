#include "decoding/row_grammar.h"

#include <algorithm>

#include "base/error.h"

namespace mantou::decoding {

RowGrammar::RowGrammar(const Constraint& constraint, int vocab_size, MaskWorker& worker)
    : constraint_(constraint), mask_words_(size_t(vocab_size + 31) / 32), worker_(worker) {
  if (constraint_.grammar && constraint_.begins_after.empty()) begin();
}

void RowGrammar::begin() {
  place_ = std::make_shared<Place>(
      Place{text::GrammarMatcher(*constraint_.grammar), std::vector<uint32_t>(mask_words_)});
  look_ahead();
}

void RowGrammar::look_ahead() {
  masking_ = worker_.run([place = place_] { place->matcher.mask(place->mask); });
}

void RowGrammar::wait() {
  if (masking_.valid()) masking_.get();
}

std::span<const uint32_t> RowGrammar::allowed() {
  if (!place_) return {};
  wait();
  return place_->mask;
}

bool RowGrammar::commit(std::span<const TokenId> history, TokenId token) {
  if (!constraint_.grammar) return false;
  if (place_) {
    wait();
    if (!place_->matcher.commit(token))
      fail(ErrorCode::kInternal, "token {} was sampled against the grammar", token);
    if (place_->matcher.is_stopped()) return true;
    look_ahead();
    return false;
  }
  const std::vector<TokenId>& mark = constraint_.begins_after;
  const bool marked =
      token == mark.back() && history.size() + 1 >= mark.size() &&
      std::equal(mark.begin(), mark.end() - 1, history.end() - ptrdiff_t(mark.size() - 1));
  if (marked) begin();
  return false;
}

}  // namespace mantou::decoding
