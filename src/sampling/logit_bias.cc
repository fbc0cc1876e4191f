// logit_bias: a number added to the logits of chosen tokens; -inf forbids a token.
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "sampling/stage.h"

namespace mantou {
namespace {

class LogitBias : public Processor {
 public:
  explicit LogitBias(const std::map<TokenId, float>& bias) : bias_(bias.begin(), bias.end()) {}
  void apply(std::span<float> logits, const Step&) override {
    for (const auto& [id, bias] : bias_) logits[size_t(id)] += bias;
  }
  bool edits_from(int64_t) const override { return true; }

 private:
  std::vector<std::pair<TokenId, float>> bias_;
};

void validate(const SamplingParams& params, const Limits&) {
  for (const auto& [id, bias] : params.logit_bias) {
    if (bias < HUGE_VALF) continue;  // false for NaN and +inf
    fail_param(ErrorCode::kInvalidArgument, "logit_bias",
               "logit_bias of token {} must be a finite number or -inf, not {}", id, bias);
  }
}

std::unique_ptr<Processor> make(const StageInput& input) {
  const auto& bias = input.params.logit_bias;
  for (const auto& [id, value] : bias) check_ids("logit_bias", {&id, 1}, input.vocab_size);
  return bias.empty() ? nullptr : std::make_unique<LogitBias>(bias);
}

}  // namespace

extern const ProcessorEntry kLogitBias;
constexpr ProcessorEntry kLogitBias{"logit_bias", validate, make};

}  // namespace mantou
