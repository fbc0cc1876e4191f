#include "cli/interrupt.h"

#include <atomic>

namespace mantou::cli {
namespace {

std::atomic<void (*)(void*)> current_act{nullptr};
std::atomic<void*> current_what{nullptr};

void on_interrupt(int) {
  if (void (*const act)(void*) = current_act.load()) act(current_what.load());
}

}  // namespace

InterruptScope::InterruptScope(void (*act)(void* what), void* what) {
  current_what.store(what);
  current_act.store(act);
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, &previous_);
}

InterruptScope::~InterruptScope() {
  ::sigaction(SIGINT, &previous_, nullptr);
  current_act.store(nullptr);
}

}  // namespace mantou::cli
