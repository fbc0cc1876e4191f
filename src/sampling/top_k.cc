// top_k: keeps the k most probable tokens; of equally probable ones those of lower id.
#include "sampling/stage.h"

namespace mantou {
namespace {

class TopK : public Filter {
 public:
  explicit TopK(int k) : k_(size_t(k)) {}
  void apply(Candidates& candidates, const Step&) override { candidates.keep_top(k_); }

 private:
  size_t k_;
};

void validate(const SamplingParams& params, const Limits&) {
  check_range("top_k", params.top_k, 0, kUnbounded);
}

std::unique_ptr<Filter> make(const StageInput& in) {
  const int k = in.params.top_k;
  return k > 0 && k < in.vocab_size ? std::make_unique<TopK>(k) : nullptr;
}

}  // namespace

extern const FilterEntry kTopK;
constexpr FilterEntry kTopK{"top_k", validate, make};

}  // namespace mantou
