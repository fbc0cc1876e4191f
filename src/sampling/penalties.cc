// Repetition, presence and frequency penalty: lower the logits of tokens that occur in the last
// tokens of the history. Each distinct token is adjusted once, knowing how often it occurs.
//
// Sources: Keskar et al., "CTRL" (arXiv 1909.05858) for the first; OpenAI's parameters for the
// others.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sampling/stage.h"

namespace mantou {
namespace {

using Adjust = float (*)(float logit, float penalty, uint32_t count);

// A tiny penalty makes the token as good as certain; only a model's own logits overflow.
float repeat(float logit, float penalty, uint32_t) {
  if (logit < 0) return logit * penalty;
  const float raised = logit / penalty;
  return std::isinf(raised) && !std::isinf(logit) ? std::numeric_limits<float>::max() : raised;
}
float present(float logit, float penalty, uint32_t) { return logit - penalty; }
float frequent(float logit, float penalty, uint32_t count) {
  return float(double(logit) - double(penalty) * count);
}

class Penalty : public Processor {
 public:
  Penalty(Adjust adjust, double penalty, int window, int vocab_size)
      : adjust_(adjust),
        penalty_(float(penalty)),
        window_(size_t(window)),
        counts_(size_t(vocab_size)) {}

  // Ids outside the vocabulary (placeholders of images) cannot be drawn and are passed over.
  void apply(std::span<float> logits, const Step& step) override {
    const size_t n = window_ == 0 ? step.history.size() : std::min(window_, step.history.size());
    const auto window = step.history.last(n);
    for (const TokenId id : window) {
      if (size_t(id) < counts_.size()) ++counts_[size_t(id)];
    }
    for (const TokenId id : window) {
      if (size_t(id) >= counts_.size() || counts_[size_t(id)] == 0) continue;
      logits[size_t(id)] = adjust_(logits[size_t(id)], penalty_, counts_[size_t(id)]);
      counts_[size_t(id)] = 0;
    }
  }

  bool edits_from(int64_t) const override { return true; }

 private:
  Adjust adjust_;
  float penalty_;
  size_t window_;                 // tokens; 0: the whole history
  std::vector<uint32_t> counts_;  // [vocab_size], zero between steps
};

std::unique_ptr<Processor> make_penalty(Adjust adjust, double penalty, double neutral, int window,
                                        int vocab_size) {
  if (penalty == 0 || penalty == neutral) return nullptr;
  return std::make_unique<Penalty>(adjust, penalty, window, vocab_size);
}

void validate_repetition(const SamplingParams& params, const Limits&) {
  check_range("repetition_penalty", params.repetition_penalty, 0, kUnbounded);
  check_range("repetition_context_size", params.repetition_context, 0, kUnbounded);
}

void validate_presence(const SamplingParams& params, const Limits&) {
  check_range("presence_penalty", params.presence_penalty, -kUnbounded, kUnbounded);
  check_range("presence_context_size", params.presence_context, 0, kUnbounded);
}

void validate_frequency(const SamplingParams& params, const Limits&) {
  check_range("frequency_penalty", params.frequency_penalty, -kUnbounded, kUnbounded);
  check_range("frequency_context_size", params.frequency_context, 0, kUnbounded);
}

std::unique_ptr<Processor> make_repetition(const StageInput& in) {
  double penalty = in.params.repetition_penalty;
  if (penalty != 0) penalty = std::max<double>(penalty, std::numeric_limits<float>::min());
  return make_penalty(repeat, penalty, 1, in.params.repetition_context, in.vocab_size);
}

std::unique_ptr<Processor> make_presence(const StageInput& in) {
  return make_penalty(present, in.params.presence_penalty, 0, in.params.presence_context,
                      in.vocab_size);
}

std::unique_ptr<Processor> make_frequency(const StageInput& in) {
  return make_penalty(frequent, in.params.frequency_penalty, 0, in.params.frequency_context,
                      in.vocab_size);
}

}  // namespace

extern const ProcessorEntry kRepetitionPenalty, kPresencePenalty, kFrequencyPenalty;
constexpr ProcessorEntry kRepetitionPenalty{"repetition_penalty", validate_repetition,
                                            make_repetition};
constexpr ProcessorEntry kPresencePenalty{"presence_penalty", validate_presence, make_presence};
constexpr ProcessorEntry kFrequencyPenalty{"frequency_penalty", validate_frequency, make_frequency};

}  // namespace mantou
