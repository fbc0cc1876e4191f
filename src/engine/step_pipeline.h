// The steps of an Executor in flight: one at a time, or where the device works beside the host the
// one after it as well. Engine thread.
#pragma once

#include <deque>
#include <exception>

#include "base/log.h"
#include "engine/executor.h"

namespace mantou {

class StepPipeline {
 public:
  explicit StepPipeline(Executor& executor) : executor_(executor) {}

  // The results of `plan`, submitted now unless it was the `next` of the run before. While the
  // device is at work on them, `next` is submitted too, where that can be.
  StepResults run(const StepPlan& plan, const StepPlan* next) {
    if (outstanding_.empty()) outstanding_.push_back(executor_.submit(plan));
    if (next)
      if (const auto ticket = executor_.submit_ahead(*next)) outstanding_.push_back(*ticket);
    const Ticket ticket = outstanding_.front();
    outstanding_.pop_front();
    return executor_.collect(ticket);
  }

  // Collects what was submitted and is of no use any more. False: its rows are lost, or one of them
  // ended in an error.
  bool drain() {
    bool whole = true;
    for (; !outstanding_.empty(); outstanding_.pop_front()) {
      try {
        for (const RowResult& row : executor_.collect(outstanding_.front()).rows)
          whole = whole && !row.error;
      } catch (const std::exception& error) {
        log_error("step", {{"error", error.what()}});
        whole = false;
      }
    }
    return whole;
  }

 private:
  Executor& executor_;
  std::deque<Ticket> outstanding_;
};

}  // namespace mantou
