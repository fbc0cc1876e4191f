// Random numbers that nothing depends on: names and seeds. Not fit for secrets. Any thread.
#pragma once

#include <cstdint>
#include <random>

namespace mantou {

inline uint64_t random_bits() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return random();
}

}  // namespace mantou
