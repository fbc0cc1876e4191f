#include "engine/step_loop_row.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace mantou {
namespace {

double seconds(StepLoop::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void StepLoop::Row::count_token(Clock::time_point now, EngineStats& stats) {
  ++outcome.completion_tokens;
  ++stats.completion_tokens;
  if (first_token) {
    stats.between_tokens.add(seconds(now - last_token));
  } else {
    first_token = now;
    stats.prefill.add(seconds(now - admitted));
    stats.first_token.add(seconds(now - generation->opened_));
  }
  last_token = now;
}

void StepLoop::Row::end(FinishReason reason, std::optional<Error> error, CancelReason cancel,
                        Clock::time_point now, EngineStats& stats) {
  outcome.reason = reason;
  outcome.cancel = cancel;
  outcome.error = std::move(error);
  Timings& timings = outcome.timings;
  timings.prefill = seconds(first_token.value_or(now) - admitted);
  timings.decode = seconds(now - first_token.value_or(now));
  if (first_token) stats.decode.add(timings.decode);
  stats.requests.add(timings.queue + timings.prefill + timings.decode);
  stats.prompts.add(double(outcome.prompt_tokens));
  stats.completions.add(double(outcome.completion_tokens));
  stats.longest = std::max(stats.longest, outcome.prompt_tokens + outcome.completion_tokens);
  finished = true;
  keep = reason != FinishReason::kError && plan.keep;
}

RowStats StepLoop::Row::report(Clock::time_point now) const {
  return {slot,
          id(),
          outcome.prompt_tokens,
          outcome.cached_tokens,
          stored,
          outcome.completion_tokens,
          plan.max_tokens,
          seconds(now - admitted),
          settings};
}

}  // namespace mantou
