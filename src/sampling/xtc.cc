// XTC (exclude top choices): with some probability, of the tokens more probable than a threshold
// only the least probable one stays, besides the end ids and the request's special tokens.
#include <algorithm>
#include <cmath>
#include <vector>

#include "sampling/stage.h"

namespace mantou {
namespace {

class Xtc : public Filter {
 public:
  Xtc(double probability, double threshold, std::vector<TokenId> special)
      : probability_(probability), threshold_(threshold), special_(std::move(special)) {}

  void apply(Candidates& candidates, const Step& step) override {
    if (uniform(step.filter_key) > probability_) return;
    const double limit = threshold_ < 1e-300 ? -HUGE_VAL  // every candidate is above it
                                             : candidates.max() + natural_log(threshold_) +
                                                   natural_log(candidates.total());
    candidates.drop_above(candidates.lowest_above(limit), special_);
  }

  bool draws() const override { return true; }

 private:
  double probability_, threshold_;
  std::vector<TokenId> special_;  // ascending
};

void validate(const SamplingParams& params, const Limits&) {
  check_range("xtc_probability", params.xtc_probability, 0, 1);
  check_range("xtc_threshold", params.xtc_threshold, 0, 0.5);
}

std::unique_ptr<Filter> make(const StageInput& in) {
  check_ids("xtc_special_tokens", in.params.xtc_special, in.vocab_size);
  if (in.params.xtc_probability == 0) return nullptr;
  std::vector<TokenId> special = in.params.xtc_special;
  special.insert(special.end(), in.end_ids.begin(), in.end_ids.end());
  std::sort(special.begin(), special.end());
  return std::make_unique<Xtc>(in.params.xtc_probability, in.params.xtc_threshold,
                               std::move(special));
}

}  // namespace

extern const FilterEntry kXtc;
constexpr FilterEntry kXtc{"xtc", validate, make};

}  // namespace mantou
