// min_tokens: what would end the row is forbidden until it generated that many tokens. With
// ignore_eos the model's end ids are ordinary tokens and stay; stop_token_ids end the row all the
// same.
#include <limits>
#include <vector>

#include "sampling/stage.h"

namespace mantou {
namespace {

class EndMask : public Processor {
 public:
  EndMask(std::vector<TokenId> ids, int min_tokens) : ids_(std::move(ids)), min_(min_tokens) {}
  void apply(std::span<float> logits, const Step& step) override {
    if (step.index >= min_) return;
    for (const TokenId id : ids_) logits[size_t(id)] = -std::numeric_limits<float>::infinity();
  }
  bool edits_from(int64_t step) const override { return step < min_; }

 private:
  std::vector<TokenId> ids_;
  int64_t min_;
};

void validate(const SamplingParams&, const Limits& limits) {
  check_range("min_tokens", limits.min_tokens, 0, kUnbounded);
}

std::unique_ptr<Processor> make(const StageInput& in) {
  check_ids("stop_token_ids", in.limits.stop_token_ids, in.vocab_size);
  std::vector<TokenId> ids = in.limits.stop_token_ids;
  if (!in.limits.ignore_eos) {
    for (const TokenId id : in.end_ids) {  // a model may name ends that its vocabulary lacks
      if (id >= 0 && id < in.vocab_size) ids.push_back(id);
    }
  }
  if (in.limits.min_tokens == 0 || ids.empty()) return nullptr;
  return std::make_unique<EndMask>(std::move(ids), in.limits.min_tokens);
}

}  // namespace

extern const ProcessorEntry kEndMask;
constexpr ProcessorEntry kEndMask{"min_tokens", validate, make};

}  // namespace mantou
