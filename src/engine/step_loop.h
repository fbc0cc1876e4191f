// Who runs next and what becomes of its results: host logic without a thread or a clock of its own,
// so that it can be tested turn by turn. Owned and driven by the engine thread.
//
// Requests are admitted in the order of arrival as rows and memory are free; the Scheduler says
// what each step forwards.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "engine/executor.h"
#include "engine/generation.h"
#include "engine/ledger.h"
#include "engine/scheduler.h"
#include "engine/stats.h"
#include "engine/step_pipeline.h"

namespace mantou {

struct StepLoopOptions {
  SchedulerOptions schedule = {};
  uint64_t state_bytes = std::numeric_limits<uint64_t>::max();  // of all rows together
  std::chrono::milliseconds patience{30'000};                   // with a reader that is behind
};

class StepLoop {
 public:
  using Clock = Generation::Clock;
  using Now = std::function<Clock::time_point()>;

  // `finished` is called after a request's on_done, when its sink is gone.
  StepLoop(Executor& executor, const StepLoopOptions& options,
           std::shared_ptr<Generation::Shared> shared, std::function<void(RequestId)> finished,
           Now now = Clock::now);
  ~StepLoop();

  void add(std::shared_ptr<Generation> generation);

  bool has_work() const { return !queue_.empty() || !rows_.empty() || pipeline_.ahead(); }

  // One turn: ends requests that were cancelled, admits those that fit, runs one step. Throws
  // nothing: what goes wrong ends the requests it happened to. False: there was no step to run; all
  // work waits for readers that are behind.
  bool turn();

  const Ledger& ledger() const { return ledger_; }

 private:
  struct Row;  // step_loop_row.h
  struct Waiting {
    std::shared_ptr<Generation> generation;
    Plan plan;
  };

  void end_cancelled();
  void look_after_readers();
  void admit_waiting();
  bool admit(const Waiting& waiting);
  void end_waiting(Generation& generation, Outcome outcome);
  bool step();
  StepPlan next_plan();
  std::optional<StepPlan> plan_ahead(const StepPlan& plan) const;
  StepResults run(const StepPlan& plan);
  void apply(const StepPlan& plan, const StepResults& results);
  void deliver(Row& row, const Work& work, const RowResult& result);
  void fail_step(const StepPlan& plan, const Error& error);
  void finish(Row& row, FinishReason reason, std::optional<Error> error = {},
              CancelReason cancel = CancelReason::kRequested);
  void release_finished();
  void close(Generation& generation, const Outcome& outcome);
  Row* row_of(RequestId id);
  double since(Clock::time_point begin) const;
  int free_slot() const;
  void publish();

  Executor& executor_;
  const StepLoopOptions options_;
  const std::shared_ptr<Generation::Shared> shared_;
  const std::function<void(RequestId)> finished_;
  const Now now_;
  StepPipeline pipeline_;
  Scheduler scheduler_;
  Ledger ledger_;
  std::deque<Waiting> queue_;
  std::vector<std::unique_ptr<Row>> rows_;
  EngineStats stats_;
};

}  // namespace mantou
