// Which rows the next step forwards, and how many tokens of each: a pure function of what it was
// told. No threads, no clock, no tensors; the engine thread owns it, and tests replay it.
//
// Rows that write get a token each in every step. What a step may read of prompts depends on
// whether anyone waits for it: alone, as much as is efficient; beside rows that write, as much as
// the time between two of their tokens allows, by the speed measured so far. Half of it goes to the
// oldest prompt, half to the one with least left to read, so that neither starves. Where steps must
// be uniform (Capabilities), steps of prompts and steps of tokens take turns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/step_plan.h"

namespace mantou {

struct SchedulerOptions {
  int chunk_alone = 2048;       // prompt tokens of a step in which no row writes
  int chunk_beside = 512;       // … at most, when rows write
  int chunk_least = 16;         // … at least
  double step_seconds = 0.15;   // what reading may add to a step in which rows write
  bool uniform = false;         // rows of a step forward equally many tokens
  bool last_alone = false;      // a prompt's last token is a step of its own
  bool respects_limits = true;  // steps end where the Executor's append_limit says

  // Of a prompt with `left` > 0 tokens to go, given so many: the next step's, limits aside.
  int64_t chunk_of(int64_t left, int64_t tokens) const {
    tokens = std::min(tokens, left);
    return last_alone && tokens == left && left > 1 ? left - 1 : tokens;
  }
};

// mlx-lm's generate_step.
inline constexpr SchedulerOptions kMlxLmSchedule{
    .chunk_alone = 2048, .last_alone = true, .respects_limits = false};

class Scheduler {
 public:
  using AppendLimit = std::function<int64_t(RequestId)>;

  explicit Scheduler(const SchedulerOptions& options) : options_(options) {}

  // A row of which `stored` < `prompt` tokens exist. Rows keep the order in which they came. One
  // that does not write is to be removed when its prompt is read.
  void add(RequestId id, int64_t prompt, int64_t stored, bool writes = true);
  void remove(RequestId id);
  // A row that is held is in no plan; its reader is behind.
  void hold(RequestId id, bool held);

  bool has_work() const;  // a row that is not held
  StepPlan next(const AppendLimit& limit) const;

  // `plan` was run and took so long. Rows that were removed since are passed over.
  void apply(const StepPlan& plan, double seconds);

 private:
  struct Row {
    RequestId id;
    int64_t left;  // prompt tokens to read; 0: it writes
    bool writes = true;
    bool held = false;
  };

  Row* find(RequestId id);  // null: none such
  int64_t budget_beside(size_t writing) const;
  int64_t chunk_of(const Row& row, int64_t tokens, const AppendLimit& limit) const;
  static Work chunk(const Row& row, int64_t tokens);
  void add_chunks(StepPlan& plan, const std::vector<const Row*>& reading, int64_t budget,
                  const AppendLimit& limit) const;
  void add_uniform(StepPlan& plan, const std::vector<const Row*>& reading, int64_t budget,
                   const AppendLimit& limit) const;

  SchedulerOptions options_;
  std::vector<Row> rows_;
  bool prompts_next_ = true;   // uniform steps: whose turn it is
  double token_seconds_ = 0;   // of a step in which rows only write; 0: not measured
  double prompt_seconds_ = 0;  // of a prompt token; 0: not measured
};

}  // namespace mantou
