#include "decoding/row_grammar.h"

#include <algorithm>

#include "base/error.h"

namespace mantou::decoding {

RowGrammar::RowGrammar(const Constraint& constraint, int vocab_size)
    : constraint_(constraint), mask_(constraint.grammar ? size_t(vocab_size + 31) / 32 : 0) {
  if (constraint_.grammar && constraint_.begins_after.empty())
    matcher_.emplace(*constraint_.grammar);
}

std::span<const uint32_t> RowGrammar::allowed() {
  if (!matcher_) return {};
  matcher_->mask(mask_);
  return mask_;
}

bool RowGrammar::commit(std::span<const TokenId> history, TokenId token) {
  if (!constraint_.grammar) return false;
  if (matcher_) {
    if (!matcher_->commit(token))
      fail(ErrorCode::kInternal, "token {} was sampled against the grammar", token);
    return matcher_->is_stopped();
  }
  const std::vector<TokenId>& mark = constraint_.begins_after;
  const bool marked =
      token == mark.back() && history.size() + 1 >= mark.size() &&
      std::equal(mark.begin(), mark.end() - 1, history.end() - ptrdiff_t(mark.size() - 1));
  if (marked) matcher_.emplace(*constraint_.grammar);
  return false;
}

}  // namespace mantou::decoding
