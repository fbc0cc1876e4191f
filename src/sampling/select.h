// Selection by accumulated weight: finds where a descending walk over values has to stop, without
// sorting them all. Pure function on caller's memory; any thread.
#pragma once

#include <span>

namespace mantou {

enum class Weighing {
  kCount,        // each value weighs 1
  kExponential,  // each value weighs exp(value - max)
};

// The lowest value v such that those above v weigh less than `target` (> 0); the lowest of all if
// even they weigh less. `values` is not empty, holds no NaN or infinity, and is left in any order.
float select_lowest(std::span<float> values, double target, Weighing weighing, float max);

}  // namespace mantou
