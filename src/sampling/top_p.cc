// top_p (nucleus): keeps the most probable tokens that together hold top_p of the probability.
// Source: Holtzman et al., "The Curious Case of Neural Text Degeneration" (arXiv 1904.09751).
#include "sampling/stage.h"

namespace mantou {
namespace {

class TopP : public Filter {
 public:
  explicit TopP(double p) : p_(p) {}
  void apply(Candidates& candidates, const Step&) override { candidates.keep_nucleus(p_); }

 private:
  double p_;
};

void validate(const SamplingParams& params, const Limits&) {
  check_range("top_p", params.top_p, 0, 1);
}

std::unique_ptr<Filter> make(const StageInput& in) {
  const double p = in.params.top_p;
  return p > 0 && p < 1 ? std::make_unique<TopP>(p) : nullptr;
}

}  // namespace

extern const FilterEntry kTopP;
constexpr FilterEntry kTopP{"top_p", validate, make};

}  // namespace mantou
