#include "engine/step_loop.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"
#include "engine/step_loop_row.h"

namespace mantou {
namespace {

// The exception being handled, as an Error.
Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kResourceExhausted, "out of memory");
  } catch (const std::exception& other) {
    return Error(ErrorCode::kInternal, fmt::format("unexpected failure: {}", other.what()));
  }
}

bool samples(const Work& work) { return work.output == Output::kSample; }

}  // namespace

StepLoop::StepLoop(Executor& executor, const StepLoopOptions& options,
                   std::shared_ptr<Generation::Shared> shared,
                   std::function<void(RequestId)> finished, Now now)
    : executor_(executor),
      options_(options),
      shared_(std::move(shared)),
      finished_(std::move(finished)),
      now_(std::move(now)),
      pipeline_(executor),
      scheduler_(options.schedule),
      ledger_(options.state_bytes) {
  publish();
}

StepLoop::~StepLoop() = default;

void StepLoop::add(std::shared_ptr<Generation> generation) {
  try {
    Plan plan = resolve_plan(generation->request_, executor_, ledger_.budget());
    queue_.push_back({std::move(generation), std::move(plan)});
  } catch (...) {
    Outcome outcome;
    outcome.error = current_error();
    end_waiting(*generation, std::move(outcome));
  }
}

bool StepLoop::turn() {
  end_cancelled();
  look_after_readers();
  if (!pipeline_.ahead()) admit_waiting();
  const bool stepped = step();
  if (!pipeline_.ahead()) release_finished();
  publish();
  return stepped;
}

void StepLoop::end_cancelled() {
  std::erase_if(queue_, [&](const Waiting& waiting) {
    if (!waiting.generation->cancelled()) return false;
    Outcome outcome;
    outcome.reason = FinishReason::kCancelled;
    outcome.cancel = waiting.generation->why();
    end_waiting(*waiting.generation, std::move(outcome));
    return true;
  });
  for (const auto& row : rows_)
    if (!row->finished && row->generation->cancelled())
      finish(*row, FinishReason::kCancelled, {}, row->generation->why());
}

void StepLoop::look_after_readers() {
  for (const auto& row : rows_) {
    if (row->finished || !row->paused) continue;
    if (!row->generation->paused_.load()) {
      row->paused.reset();
      scheduler_.hold(row->id(), false);
    } else if (now_() - *row->paused >= options_.patience) {
      finish(*row, FinishReason::kCancelled, {}, CancelReason::kConsumerIdle);
    }
  }
}

// In the order of arrival. A request that waits for the state of a prompt being read lets others
// pass; one that waits for memory does not, so that large ones get their turn.
void StepLoop::admit_waiting() {
  for (size_t next = 0; next < queue_.size();) {
    if (int(rows_.size()) >= executor_.capabilities().max_rows) return;
    const Waiting head = queue_[next];
    Generation& generation = *head.generation;
    try {
      if (head.plan.reuse && executor_.is_worth_waiting(generation.request_)) {
        next++;
        continue;
      }
      if (!admit(head)) return;
    } catch (...) {
      const Error error = current_error();
      if (Row* row = row_of(generation.id())) {
        finish(*row, FinishReason::kError, error);
      } else {
        Outcome outcome;
        outcome.error = error;
        end_waiting(generation, std::move(outcome));
      }
    }
    queue_.erase(queue_.begin() + ptrdiff_t(next));
  }
}

// Of a request that never became a row.
void StepLoop::end_waiting(Generation& generation, Outcome outcome) {
  outcome.prompt_tokens = int64_t(generation.request_.prompt.size());
  outcome.timings.queue = since(generation.opened_);
  generation.leave_queue();
  close(generation, outcome);
}

// False: there is no room for it now.
bool StepLoop::admit(const Waiting& waiting) {
  const auto& [generation, plan] = waiting;
  const Request& request = generation->request_;
  const int64_t prompt = int64_t(request.prompt.size());
  std::optional<Ledger::Reservation> reserved =
      ledger_.reserve(executor_.row_bytes(prompt + plan.max_tokens));
  if (!reserved) return false;
  auto row = std::make_unique<Row>();
  row->generation = generation;
  row->reserved = std::move(*reserved);
  row->admitted = now_();
  row->outcome.prompt_tokens = prompt;
  row->outcome.timings.queue = since(generation->opened_);
  row->plan = plan;
  row->outcome.bypassed = plan.bypassed;
  generation->leave_queue();
  const Admission admission = executor_.admit(request, plan);
  row->stored = row->outcome.cached_tokens = admission.cached_tokens;
  row->slot = free_slot();
  row->settings =
      std::make_shared<const RowSettings>(RowSettings{request.sampling, request.limits});
  stats_.queue.add(row->outcome.timings.queue);
  stats_.cached_tokens += uint64_t(admission.cached_tokens);
  if (plan.reuse) stats_.cache_queries += uint64_t(prompt);
  rows_.push_back(std::move(row));
  Row& live = *rows_.back();
  if (live.stored < 0 || live.stored >= prompt)
    fail(ErrorCode::kInternal, "{} of {} prompt tokens were reported as cached", live.stored,
         prompt);
  scheduler_.add(request.id, prompt, live.stored, plan.writes());
  if (is_logged(LogLevel::kDebug))
    log_debug("admitted", {{"request", request.id},
                           {"prompt", prompt},
                           {"cached", live.stored},
                           {"max_tokens", plan.max_tokens},
                           {"bytes", live.reserved.bytes()}});
  if (!generation->sink_->on_admitted(admission))
    finish(live, FinishReason::kCancelled, {}, CancelReason::kConsumerClosed);
  return true;
}

bool StepLoop::step() {
  const StepPlan plan = next_plan();
  if (plan.work.empty()) return false;
  try {
    const Clock::time_point begin = now_();
    const StepResults results = run(plan);
    const double seconds = since(begin);
    if (is_logged(LogLevel::kTrace))
      log_trace("step", {{"rows", plan.work.size()}, {"ms", fmt::format("{:.2f}", 1e3 * seconds)}});
    if (results.stopped) {
      if (!shared_->step_stop.is_set())
        fail(ErrorCode::kInternal, "a step stopped although nobody asked for it");
      return true;  // the next turn ends the rows for which it stopped
    }
    scheduler_.apply(plan, seconds);
    ++stats_.steps;
    stats_.rows_of_steps += plan.work.size();
    apply(plan, results);
  } catch (...) {
    fail_step(plan, current_error());
  }
  return true;
}

StepPlan StepLoop::next_plan() {
  if (pipeline_.ahead()) return *pipeline_.ahead();
  StepPlan plan = scheduler_.next([&](RequestId id) { return executor_.append_limit(id); });
  plan.stop = &shared_->step_stop;
  return plan;
}

// The step that every row of `plan` is to make next, when nothing else is to happen before.
std::optional<StepPlan> StepLoop::plan_ahead(const StepPlan& plan) const {
  if (!queue_.empty() || plan.work.size() != rows_.size()) return std::nullopt;
  StepPlan next{{}, plan.stop};
  for (const Work& work : plan.work) {
    if (!samples(work)) return std::nullopt;
    next.work.push_back({work.id, 1, Output::kSample});
  }
  for (const auto& row : rows_)
    if (row->finished || row->paused) return std::nullopt;
  return next;
}

// A step is stopped for a request that is cancelled where no row loses a token by it: where none
// is writing, or that one alone.
StepResults StepLoop::run(const StepPlan& plan) {
  const bool stoppable =
      plan.work.size() == 1 || std::none_of(plan.work.begin(), plan.work.end(), samples);
  shared_->step_stop.clear();
  for (const Work& work : plan.work) {
    Row* const row = row_of(work.id);
    row->generation->stops_step_.store(stoppable);
    if (stoppable && row->generation->cancelled()) shared_->step_stop.set();
  }
  const std::optional<StepPlan> next = plan_ahead(plan);
  return pipeline_.run(plan, next ? &*next : nullptr);
}

void StepLoop::apply(const StepPlan& plan, const StepResults& results) {
  if (results.rows.size() != plan.work.size())
    fail(ErrorCode::kInternal, "a step of {} rows returned {} results", plan.work.size(),
         results.rows.size());
  for (size_t i = 0; i < plan.work.size(); i++)
    if (results.rows[i].id != plan.work[i].id)
      fail(ErrorCode::kInternal, "a step returned a result for request {} in place of {}",
           results.rows[i].id, plan.work[i].id);
  for (size_t i = 0; i < plan.work.size(); i++) {
    Row& row = *row_of(plan.work[i].id);
    if (row.finished) {
      row.keep = row.keep && !results.rows[i].error;
      continue;
    }
    try {
      deliver(row, plan.work[i], results.rows[i]);
    } catch (...) {
      finish(row, FinishReason::kError, current_error());
    }
  }
}

void StepLoop::deliver(Row& row, const Work& work, const RowResult& result) {
  if (result.error) return finish(row, FinishReason::kError, result.error);
  if (samples(work) != result.token.has_value())
    fail(ErrorCode::kInternal, "a step returned {} token",
         result.token ? "an unasked" : "no sampled");
  Sink& sink = *row.generation->sink_;
  if (row.stored < row.outcome.prompt_tokens) {
    row.stored += work.tokens;
    stats_.prompt_tokens += uint64_t(work.tokens);
    sink.on_progress(row.stored, row.outcome.prompt_tokens);
    if (!result.scores.empty()) sink.on_scores(result.scores);
    if (!row.plan.writes() && row.stored == row.outcome.prompt_tokens)
      return finish(row, FinishReason::kLength);
  }
  if (!result.token) return;
  row.count_token(now_(), stats_);
  if (result.is_end) return finish(row, FinishReason::kStop);
  row.generation->paused_.store(true);  // before the sink's reader can resume
  const Flow flow = sink.on_token(row.next_sequence++, *result.token);
  if (flow != Flow::kPause) row.generation->paused_.store(false);
  if (flow == Flow::kStop) return finish(row, FinishReason::kStop);
  if (flow == Flow::kClosed)
    return finish(row, FinishReason::kCancelled, {}, CancelReason::kConsumerClosed);
  if (result.finished) return finish(row, *result.finished);
  if (flow == Flow::kPause && !row.paused) {
    row.paused = now_();
    scheduler_.hold(row.id(), true);
  }
}

// The rows of a step that failed as a whole. Those that ended before it keep nothing either.
void StepLoop::fail_step(const StepPlan& plan, const Error& error) {
  for (const Work& work : plan.work) {
    Row* const row = row_of(work.id);
    if (!row) continue;
    row->keep = false;
    if (!row->finished) finish(*row, FinishReason::kError, error);
  }
}

void StepLoop::finish(Row& row, FinishReason reason, std::optional<Error> error,
                      CancelReason cancel) {
  row.end(reason, std::move(error), cancel, now_(), stats_);
  row.generation->stops_step_.store(false);
  scheduler_.remove(row.id());
  close(*row.generation, row.outcome);
}

void StepLoop::release_finished() {
  std::erase_if(rows_, [&](const std::unique_ptr<Row>& row) {
    if (!row->finished) return false;
    try {
      executor_.release(row->id(), row->keep ? Release::kKeep : Release::kDrop);
    } catch (const std::exception& failure) {
      log_error("release", {{"request", row->id()}, {"error", failure.what()}});
    }
    return true;
  });
}

void StepLoop::close(Generation& generation, const Outcome& outcome) {
  ++(outcome.is_refusal() ? stats_.invalid : stats_.finished[size_t(outcome.reason)]);
  publish();
  try {
    generation.sink_->on_done(outcome);
  } catch (const std::exception& failure) {
    log_error("sink", {{"request", generation.id()}, {"error", failure.what()}});
  }
  generation.sink_.reset();
  finished_(generation.id());
}

int StepLoop::free_slot() const {
  int slot = 0;
  const auto taken = [&](const std::unique_ptr<Row>& row) { return row->slot == slot; };
  while (std::any_of(rows_.begin(), rows_.end(), taken)) ++slot;
  return slot;
}

void StepLoop::publish() {
  const Clock::time_point now = now_();
  stats_.state_budget = ledger_.budget();
  stats_.state_reserved = ledger_.reserved();
  stats_.cache = executor_.cache_stats();
  stats_.rates.note(now, {stats_.prompt_tokens, stats_.completion_tokens});
  stats_.rows.clear();
  for (const auto& row : rows_)
    if (!row->finished) stats_.rows.push_back(row->report(now));
  shared_->stats.publish(stats_);
}

StepLoop::Row* StepLoop::row_of(RequestId id) {
  for (const auto& row : rows_)
    if (row->id() == id) return row.get();
  return nullptr;
}

double StepLoop::since(Clock::time_point begin) const {
  return std::chrono::duration<double>(now_() - begin).count();
}

}  // namespace mantou
