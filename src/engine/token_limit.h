// How many tokens a request may generate: its own limit, the context, and the memory for its state.
// A pure function.
#pragma once

#include <cstdint>

#include "engine/executor.h"

namespace mantou {

// The limit after clamping to the context and to what `budget` bytes hold of one row. Errors,
// naming the numbers and the knob that binds: kResourceExhausted for a prompt that leaves no room.
int64_t token_limit(const Request& request, const Executor& executor, uint64_t budget);

}  // namespace mantou
