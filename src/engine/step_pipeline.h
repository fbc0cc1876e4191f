// The steps of an Executor in flight: one at a time, or where the device works beside the host the
// one after it as well. Engine thread.
#pragma once

#include <optional>
#include <utility>

#include "engine/executor.h"

namespace mantou {

class StepPipeline {
 public:
  explicit StepPipeline(Executor& executor) : executor_(executor) {}

  // The step that was submitted ahead and must be run next.
  const std::optional<StepPlan>& ahead() const { return ahead_; }

  // The results of `plan`: that of ahead(), else submitted now. While the device is at work on
  // them, `next` is submitted too, where that can be.
  StepResults run(const StepPlan& plan, const StepPlan* next) {
    const Ticket ticket = ahead_ ? ticket_ : executor_.submit(plan);
    ahead_.reset();
    std::exception_ptr failure;
    try {
      if (next) {
        const std::optional<Ticket> taken = executor_.submit_ahead(*next);
        if (taken) ticket_ = *taken;
        if (taken) ahead_ = *next;
      }
    } catch (...) {
      failure = std::current_exception();
    }
    StepResults results = executor_.collect(ticket);
    if (failure) std::rethrow_exception(failure);
    return results;
  }

 private:
  Executor& executor_;
  std::optional<StepPlan> ahead_;
  Ticket ticket_ = 0;  // of ahead_
};

}  // namespace mantou
