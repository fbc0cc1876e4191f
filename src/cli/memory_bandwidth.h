// How fast this machine reads memory, measured for a fraction of a second: what bounds the rate of
// generation. Starts its own threads and ends them.
#pragma once

#include <cstdint>

namespace mantou::cli {

// Bytes per second that `threads` threads together read, of `bytes` that caches should not hold, in
// huge pages as weights are. The best of many short passes: on a busy machine a long one would
// measure how often other programs run.
double measure_memory_bandwidth(int threads, uint64_t bytes);

}  // namespace mantou::cli
