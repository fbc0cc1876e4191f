#include "cli/options.h"

namespace mantou::cli {
namespace {

template <class T, class U>
void take(const std::optional<T>& given, U& value) {
  if (given) value = U(*given);
}

}  // namespace

void apply(const SamplingOptions& options, SamplingParams& params) {
  take(options.seed, params.seed);
  take(options.temperature, params.temperature);
  take(options.top_p, params.top_p);
  take(options.top_k, params.top_k);
  take(options.min_p, params.min_p);
  take(options.xtc_probability, params.xtc_probability);
  take(options.xtc_threshold, params.xtc_threshold);
  take(options.repeat_penalty, params.repetition_penalty);
  if (options.repeat_last_n) set_repeat_last_n(params, *options.repeat_last_n);
  take(options.repetition_context_size, params.repetition_context);
  take(options.presence_penalty, params.presence_penalty);
  take(options.frequency_penalty, params.frequency_penalty);
}

void apply(const LimitOptions& options, Limits& limits) {
  take(options.max_tokens, limits.max_tokens);
  if (options.min_tokens > 0) limits.min_tokens = options.min_tokens;
  if (options.ignore_eos) limits.ignore_eos = true;
}

}  // namespace mantou::cli
