// Counter-based random numbers: threefry2x32 and the keys of a row's draws. Nothing here has state,
// so draw number `step` of a seed is the same on every machine, in every batch and after a restart.
// Any thread.
//
// Sources: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011);
// words, split and bit order are those of JAX's and MLX's default generator.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace mantou {

struct ThreefryPair {
  uint32_t first = 0, second = 0;
  bool operator==(const ThreefryPair&) const = default;
};

using ThreefryKey = ThreefryPair;

// The 20-round Threefry-2x32 hash of a counter under a key.
constexpr ThreefryPair threefry2x32(ThreefryKey key, ThreefryPair counter) {
  constexpr int kRotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
  const uint32_t schedule[3] = {key.first, key.second, 0x1bd11bdau ^ key.first ^ key.second};
  uint32_t x = counter.first + schedule[0];
  uint32_t y = counter.second + schedule[1];
  for (uint32_t block = 0; block < 5; ++block) {  // four rounds, then a key injection
    for (uint32_t round = 0; round < 4; ++round) {
      x += y;
      y = std::rotl(y, kRotations[block % 2 * 4 + round]) ^ x;
    }
    x += schedule[(block + 1) % 3];
    y += schedule[(block + 2) % 3] + block + 1;
  }
  return {x, y};
}

constexpr ThreefryKey make_key(uint64_t seed) { return {uint32_t(seed >> 32), uint32_t(seed)}; }

// The key of the row's draw number `step` (0 for its first sampled token).
constexpr ThreefryKey step_key(uint64_t seed, int64_t step) {
  return make_key(seed ^ ((uint64_t(step) + 1) * 0x9e3779b97f4a7c15u));
}

// Two independent keys out of one.
constexpr std::array<ThreefryKey, 2> split_key(ThreefryKey key) {
  const ThreefryPair a = threefry2x32(key, {0, 2});
  const ThreefryPair b = threefry2x32(key, {1, 3});
  return {ThreefryKey{a.first, b.first}, ThreefryKey{a.second, b.second}};
}

// A double in [0, 1) of 53 random bits.
constexpr double uniform(ThreefryKey key) {
  const ThreefryPair bits = threefry2x32(key, {0, 1});
  return double((uint64_t(bits.first) << 32 | bits.second) >> 11) * 0x1p-53;
}

}  // namespace mantou
