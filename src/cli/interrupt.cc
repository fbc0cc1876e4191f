#include "cli/interrupt.h"

#include <atomic>

namespace mantou::cli {
namespace {

std::atomic<void (*)(void*)> current_act{nullptr};
std::atomic<void*> current_what{nullptr};

void on_interrupt(int) {
  if (void (*const act)(void*) = current_act.load()) act(current_what.load());
}

// A signal in between finds nothing to do.
void change(void (*act)(void*), void* what) {
  current_act.store(nullptr);
  current_what.store(what);
  current_act.store(act);
}

}  // namespace

InterruptScope::InterruptScope(void (*act)(void* what), void* what)
    : outer_act_(current_act.load()), outer_what_(current_what.load()) {
  change(act, what);
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, &previous_);
}

InterruptScope::~InterruptScope() {
  ::sigaction(SIGINT, &previous_, nullptr);
  change(outer_act_, outer_what_);
}

}  // namespace mantou::cli
