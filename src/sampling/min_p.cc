// min_p: keeps tokens at least min_p times as probable as the best one, and never fewer than
// min_tokens_to_keep. Source: Nguyen et al., "Turning Up the Heat" (arXiv 2407.01082).
#include "sampling/stage.h"

namespace mantou {
namespace {

class MinP : public Filter {
 public:
  MinP(double p, int keep) : log_p_(p < 1e-300 ? -1e3 : natural_log(p)), keep_(size_t(keep)) {}
  void apply(Candidates& candidates, const Step&) override {
    const double lowest = candidates.max() + log_p_;
    if (candidates.count_from(lowest) < keep_) {
      candidates.keep_top(keep_);
    } else {
      candidates.keep_from(lowest);
    }
  }

 private:
  double log_p_;
  size_t keep_;
};

void validate(const SamplingParams& params, const Limits&) {
  check_range("min_p", params.min_p, 0, 1);
  check_range("min_tokens_to_keep", params.min_tokens_to_keep, 1, kUnbounded);
}

std::unique_ptr<Filter> make(const StageInput& in) {
  if (in.params.min_p == 0) return nullptr;
  return std::make_unique<MinP>(in.params.min_p, in.params.min_tokens_to_keep);
}

}  // namespace

extern const FilterEntry kMinP;
constexpr FilterEntry kMinP{"min_p", validate, make};

}  // namespace mantou
