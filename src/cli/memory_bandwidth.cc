#include "cli/memory_bandwidth.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "base/arena.h"

namespace mantou::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSegment = size_t{16} << 20;  // bytes a thread reads in one pass
constexpr size_t kRounds = 3;                  // over all segments

// Eight sums, so that additions do not wait for each other.
uint64_t read_all(std::span<const uint64_t> values) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= values.size(); i += 8)
    for (size_t j = 0; j < 8; ++j) sums[j] += values[i + j];
  uint64_t sum = 0;
  for (const uint64_t s : sums) sum += s;
  return sum;
}

}  // namespace

double measure_memory_bandwidth(int threads, uint64_t bytes) {
  const size_t segments = std::max<size_t>(bytes / kSegment / size_t(threads), 1);
  const size_t passes = segments * kRounds;
  constexpr size_t kValues = kSegment / sizeof(uint64_t);
  std::barrier together(threads);
  std::vector<Clock::time_point> begins(passes), ends(passes);
  std::atomic<uint64_t> unused{0};  // keeps the reads
  Arena arena(segments * kSegment);
  std::vector<uint64_t*> parts;
  for (int thread = 0; thread < threads; ++thread)
    parts.push_back(arena.allocate_array<uint64_t>(segments * kValues));
  const auto work = [&](int thread) {
    uint64_t* part = parts[size_t(thread)];
    std::memset(part, thread + 1, segments * kSegment);  // touched by who reads it
    for (size_t pass = 0; pass < passes; ++pass) {
      together.arrive_and_wait();
      if (thread == 0) begins[pass] = Clock::now();
      unused += read_all({part + pass % segments * kValues, kValues});
      together.arrive_and_wait();
      if (thread == 0) ends[pass] = Clock::now();
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  work(0);
  for (std::thread& thread : others) thread.join();
  double best = 0;
  for (size_t pass = 0; pass < passes; ++pass) {
    const std::chrono::duration<double> took = ends[pass] - begins[pass];
    best = std::max(best, double(kSegment) * threads / took.count());
  }
  return best;
}

}  // namespace mantou::cli
