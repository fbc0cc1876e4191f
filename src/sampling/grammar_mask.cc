// The grammar's mask of a step: every token whose bit is 0, or that lies beyond the mask, is
// forbidden.
#include <algorithm>
#include <limits>

#include "sampling/stage.h"

namespace mantou {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();
constexpr size_t kWordBits = 32;

class GrammarMask : public Processor {
 public:
  void apply(std::span<float> logits, const Step& step) override {
    if (step.allowed.empty()) return;
    for (size_t begin = 0; begin < logits.size(); begin += kWordBits) {
      const size_t word = begin / kWordBits;
      const uint32_t bits = word < step.allowed.size() ? step.allowed[word] : 0;
      if (bits == ~uint32_t{0}) continue;
      const auto part = logits.subspan(begin, std::min(kWordBits, logits.size() - begin));
      for (size_t i = 0; i < part.size(); ++i) part[i] = bits >> i & 1 ? part[i] : kForbidden;
    }
  }
  bool edits_from(int64_t) const override { return false; }
};

void validate(const SamplingParams&, const Limits&) {}

std::unique_ptr<Processor> make(const StageInput&) { return std::make_unique<GrammarMask>(); }

}  // namespace

extern const ProcessorEntry kGrammarMask;
constexpr ProcessorEntry kGrammarMask{"grammar", validate, make};

}  // namespace mantou
