// Ctrl-C that ends an answer instead of the program. Main thread.
#pragma once

#include <csignal>

namespace mantou::cli {

// While it lives, SIGINT calls act(what), within a signal handler: `act` may touch lock-free
// atomics only. One at a time.
class InterruptScope {
 public:
  InterruptScope(void (*act)(void* what), void* what);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  struct sigaction previous_{};
};

}  // namespace mantou::cli
