#include "engine/token_limit.h"

#include <algorithm>

#include "base/error.h"

namespace mantou {
namespace {

// The most tokens, up to `most`, of which a row's state fits into `budget`.
int64_t tokens_within(const Executor& executor, int64_t most, uint64_t budget) {
  int64_t low = 0;
  while (low < most) {
    const int64_t middle = low + (most - low + 1) / 2;
    if (executor.row_bytes(middle) <= budget)
      low = middle;
    else
      most = middle - 1;
  }
  return low;
}

}  // namespace

int64_t longest_row(const Executor& executor, uint64_t budget) {
  return tokens_within(executor, executor.capabilities().context, budget);
}

int64_t token_limit(const Request& request, const Executor& executor, uint64_t budget) {
  const int64_t prompt = int64_t(request.prompt.size()), context = executor.capabilities().context;
  const int64_t wanted = request.limits.max_tokens;
  if (wanted == 0 ? prompt > context : prompt >= context)
    fail_param(ErrorCode::kResourceExhausted, "prompt",
               "the prompt has {} tokens, the context holds {}; shorten it or raise --ctx-size",
               prompt, context);
  const int64_t room = wanted < 0 ? context - prompt : std::min<int64_t>(wanted, context - prompt);
  const int64_t within = tokens_within(executor, prompt + room, budget);
  // The last token is never stored.
  if (within < prompt || (within == prompt && room > 0))
    fail_param(ErrorCode::kResourceExhausted, "prompt",
               "the prompt has {} tokens, whose keys and values take {} MiB; --kv-memory allows {} "
               "MiB: shorten it, raise that, or quantize them (--kv-quant 8)",
               prompt, executor.row_bytes(prompt) >> 20, budget >> 20);
  return std::min(room, within - prompt);
}

}  // namespace mantou
