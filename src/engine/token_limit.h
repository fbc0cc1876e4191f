// How many tokens a request may generate: its own limit, the context, and the memory for its state.
// Pure functions.
#pragma once

#include <cstdint>

#include "engine/executor.h"

namespace mantou {

// The most tokens that a row may have: what the context holds and `budget` bytes of state do.
int64_t longest_row(const Executor& executor, uint64_t budget);

// The limit after clamping to the context and to what `budget` bytes hold of one row. Errors,
// naming the numbers and the knob that binds: kResourceExhausted for a prompt that leaves no room.
int64_t token_limit(const Request& request, const Executor& executor, uint64_t budget);

}  // namespace mantou
