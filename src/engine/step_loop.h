// Which row runs next and what becomes of its results: host logic without a thread of its own, so
// that it can be tested turn by turn. Owned and driven by the engine thread.
//
// Requests run one after another in the order of arrival; prompts are forwarded in chunks.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "engine/executor.h"
#include "engine/generation.h"
#include "engine/schedule.h"
#include "engine/step_pipeline.h"

namespace mantou {

class StepLoop {
 public:
  // `finished` is called after a request's on_done, when its sink is gone.
  StepLoop(Executor& executor, Schedule schedule, std::function<void(RequestId)> finished);

  void add(std::shared_ptr<Generation> generation);
  bool has_work() const { return row_ || !queue_.empty(); }

  // One turn: ends waiting requests that were cancelled, then admits the next request or runs one
  // step. Throws nothing: what goes wrong ends the request it happened to.
  void turn();

 private:
  using Clock = Generation::Clock;

  // The request that runs.
  struct Row {
    Row();  // out of line: inside the class, clang cannot yet see the initialisers below
    std::shared_ptr<Generation> generation;
    bool live = false;   // the Executor holds a row of this id
    int64_t stored = 0;  // prompt tokens whose state exists
    uint64_t next_sequence = 0;
    Outcome outcome;  // filled in as the row goes
    Clock::time_point admitted;
    std::optional<Clock::time_point> first_token;
  };

  void end_cancelled();
  void admit_next();
  void step();
  Work next_work() const;
  void apply(const Work& work, const RowResult& result);
  void finish(FinishReason reason, std::optional<Error> error = {});
  void close(Generation& generation, const Outcome& outcome);

  Executor& executor_;
  StepPipeline steps_;  // of row_
  const Schedule schedule_;
  const std::function<void(RequestId)> finished_;
  std::deque<std::shared_ptr<Generation>> queue_;
  std::optional<Row> row_;
};

}  // namespace mantou
