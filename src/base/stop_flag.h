// A request to stop, set from any thread and polled between layers and steps, so that stopping
// never waits for a long chunk.
#pragma once

#include <atomic>

namespace mantou {

class StopFlag {
 public:
  void set() { flag_.store(true, std::memory_order_relaxed); }
  void clear() { flag_.store(false, std::memory_order_relaxed); }
  bool is_set() const { return flag_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> flag_{false};
};

}  // namespace mantou
