#include "sampling/sampler.h"

#include <algorithm>

#include "base/error.h"

namespace mantou {
namespace {

template <class Stage>
void make_stages(std::span<const StageEntry<Stage>* const> table, const StageInput& input,
                 std::vector<std::unique_ptr<Stage>>& stages) {
  for (const StageEntry<Stage>* entry : table) {
    if (auto stage = entry->make(input)) stages.push_back(std::move(stage));
  }
}

SamplingParams checked(const SamplingParams& params, const Limits& limits) {
  validate(params, limits);
  return params;
}

[[noreturn]] void fail_without_token(size_t vocab_size, bool edited) {
  if (edited) {
    fail(ErrorCode::kInvalidArgument,
         "no token is left to choose: grammar, logit_bias and min_tokens forbid all {}",
         vocab_size);
  }
  fail(ErrorCode::kNumerical, "the model's logits are -inf for all {} tokens", vocab_size);
}

}  // namespace

void validate(const SamplingParams& params, const Limits& limits) {
  check_range("temperature", params.temperature, 0, kUnbounded);
  check_range("top_logprobs", params.top_logprobs, 0, kMaxTopLogprobs);
  for (const ProcessorEntry* entry : processor_table()) entry->validate(params, limits);
  for (const FilterEntry* entry : filter_table()) entry->validate(params, limits);
}

Sampler::Sampler(const SamplingParams& params, const Limits& limits,
                 std::span<const TokenId> end_ids, int vocab_size)
    : temperature_(checked(params, limits).temperature),
      seed_(params.seed),
      logprobs_(params.logprobs || params.top_logprobs > 0),
      top_logprobs_(size_t(params.top_logprobs)),
      candidates_(size_t(vocab_size)) {
  const StageInput input{params, limits, end_ids, vocab_size};
  make_stages(processor_table(), input, processors_);
  make_stages(filter_table(), input, filters_);
  draws_ = std::any_of(filters_.begin(), filters_.end(), [](auto& f) { return f->draws(); });
}

GeneratedToken Sampler::sample(std::span<float> logits, std::span<const TokenId> history,
                               int64_t step, std::span<const uint32_t> allowed) {
  const Step now{step, history, allowed, {}};
  for (const auto& processor : processors_) processor->apply(logits, now);
  candidates_.reset(logits);
  if (candidates_.none()) fail_without_token(logits.size(), !allowed.empty() || edits_from(step));

  GeneratedToken token;
  double total = 0;
  if (logprobs_) {  // before the filters: what the model said, as the processors left it
    total = log_total();
    report_top(top_logprobs_, total, token);
  }
  token.id = choose(now);
  if (logprobs_) token.logprob = float(logits[size_t(token.id)] - total);
  return token;
}

GeneratedToken Sampler::score(std::span<const float> logits, TokenId id, int top) {
  candidates_.reset(logits);
  if (candidates_.none()) fail_without_token(logits.size(), false);
  const double total = log_total();
  GeneratedToken token{id, float(logits[size_t(id)] - total), {}};
  report_top(size_t(top), total, token);
  return token;
}

// The logarithm of the sum of exp(logit).
double Sampler::log_total() { return double(candidates_.max()) + natural_log(candidates_.total()); }

void Sampler::report_top(size_t count, double log_total, GeneratedToken& token) const {
  candidates_.largest(count, token.top);
  for (TokenLogprob& entry : token.top) entry.logprob = float(entry.logprob - log_total);
}

TokenId Sampler::choose(Step step) {
  if (temperature_ == 0) return candidates_.best();
  ThreefryKey key = step_key(seed_, step.index);
  if (draws_) {
    const auto keys = split_key(key);
    step.filter_key = keys[0];
    key = keys[1];
  }
  for (const auto& filter : filters_) filter->apply(candidates_, step);
  return candidates_.draw(uniform(key), temperature_);
}

bool Sampler::edits_from(int64_t step) const {
  return std::any_of(processors_.begin(), processors_.end(),
                     [step](const auto& p) { return p->edits_from(step); });
}

bool Sampler::is_plain_greedy(int64_t step) const {
  return temperature_ == 0 && !logprobs_ && !edits_from(step);
}

}  // namespace mantou
