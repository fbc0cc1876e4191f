// Ctrl-C that ends an answer instead of the program. Main thread.
#pragma once

#include <csignal>

namespace mantou::cli {

// While it lives, SIGINT calls act(what), within a signal handler: `act` may touch lock-free
// atomics only. Scopes nest; the innermost counts.
class InterruptScope {
 public:
  InterruptScope(void (*act)(void* what), void* what);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  void (*const outer_act_)(void*);
  void* const outer_what_;
  struct sigaction previous_{};
};

}  // namespace mantou::cli
