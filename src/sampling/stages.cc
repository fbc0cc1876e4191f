#include <array>
#include <string>

#include "base/error.h"
#include "sampling/stage.h"

namespace mantou {

extern const ProcessorEntry kLogitBias, kRepetitionPenalty, kPresencePenalty, kFrequencyPenalty,
    kGrammarMask, kEndMask;
extern const FilterEntry kTopP, kMinP, kXtc, kTopK;

std::span<const ProcessorEntry* const> processor_table() {
  static constexpr std::array kTable = {
      &kLogitBias,        &kRepetitionPenalty, &kPresencePenalty,
      &kFrequencyPenalty, &kGrammarMask,       &kEndMask,
  };
  return kTable;
}

std::span<const FilterEntry* const> filter_table() {
  static constexpr std::array kTable = {
      &kTopP,
      &kMinP,
      &kXtc,
      &kTopK,
  };
  return kTable;
}

void check_range(std::string_view field, double value, double low, double high) {
  if (value >= low && value <= high) return;  // false for NaN
  const std::string name(field);
  if (low == -kUnbounded) {
    fail_param(ErrorCode::kInvalidArgument, name, "{} must be a finite number, not {}", name,
               value);
  }
  if (high == kUnbounded) {
    fail_param(ErrorCode::kInvalidArgument, name, "{} must be a finite number from {} up, not {}",
               name, low, value);
  }
  fail_param(ErrorCode::kInvalidArgument, name, "{} must be from {} to {}, not {}", name, low, high,
             value);
}

void check_ids(std::string_view field, std::span<const TokenId> ids, int vocab_size) {
  for (const TokenId id : ids) {
    if (id >= 0 && id < vocab_size) continue;
    fail_param(ErrorCode::kInvalidArgument, std::string(field),
               "{} names token {}, outside the vocabulary of {}", field, id, vocab_size);
  }
}

}  // namespace mantou
