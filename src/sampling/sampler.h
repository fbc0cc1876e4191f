// One row's choice of its next token: logits in, token out. A Sampler belongs to one row and is
// used on the engine thread. It holds settings and scratch memory only, so a step may be sampled
// again, skipped or sampled ahead of time (speculation): the token depends on logits, history and
// step alone. docs/sampling.md gives order and formulas.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/request.h"
#include "sampling/candidates.h"
#include "sampling/stage.h"

namespace mantou {

// Error kInvalidArgument: a value is NaN or out of range; `param` is the API's name of the field.
void validate(const SamplingParams& params, const Limits& limits = {});

class Sampler {
 public:
  // `end_ids` are the model's. Errors: those of validate, and ids outside the vocabulary.
  Sampler(const SamplingParams& params, const Limits& limits, std::span<const TokenId> end_ids,
          int vocab_size);

  // Chooses the row's token number `step` (0 for the first generated one). `logits` holds
  // vocab_size values and is overwritten; `history` is the prompt and the `step` tokens generated
  // so far; `allowed` is the grammar's bit mask for this step, empty without a grammar. Errors:
  // kNumerical (NaN or infinite logits), kInvalidArgument (the request's own settings forbid every
  // token). The Sampler stays usable.
  GeneratedToken sample(std::span<float> logits, std::span<const TokenId> history, int64_t step,
                        std::span<const uint32_t> allowed = {});

  // What the model says of token `id`: its log-probability and the `top` most probable tokens.
  // Error: kNumerical. `logits` holds vocab_size values.
  GeneratedToken score(std::span<const float> logits, TokenId id, int top);

  // From `step` on, without a grammar, sample() is the arg-max of unedited logits, lowest id first
  // where equal, and reports no log-probabilities: the device may do it.
  bool is_plain_greedy(int64_t step = 0) const;

 private:
  TokenId choose(Step step);
  double log_total();
  void report_top(size_t count, double log_total, GeneratedToken& token) const;
  bool edits_from(int64_t step) const;

  const double temperature_;
  const uint64_t seed_;
  const bool logprobs_;
  const size_t top_logprobs_;
  std::vector<std::unique_ptr<Processor>> processors_;
  std::vector<std::unique_ptr<Filter>> filters_;
  bool draws_ = false;  // a filter needs a key of its own
  Candidates candidates_;
};

}  // namespace mantou
