#include "engine/step_loop.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"

namespace mantou {
namespace {

double seconds(Generation::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

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

}  // namespace

StepLoop::Row::Row() = default;

StepLoop::StepLoop(Executor& executor, Schedule schedule, std::function<void(RequestId)> finished)
    : executor_(executor), steps_(executor), schedule_(schedule), finished_(std::move(finished)) {}

void StepLoop::add(std::shared_ptr<Generation> generation) {
  queue_.push_back(std::move(generation));
}

void StepLoop::turn() {
  try {
    end_cancelled();
    if (row_) {
      step();
    } else if (!queue_.empty()) {
      admit_next();
    }
  } catch (...) {
    const Error error = current_error();
    if (row_) return finish(FinishReason::kError, error);
    log_error("step", {{"error", error.message()}});
  }
}

void StepLoop::end_cancelled() {
  for (;;) {
    const auto first = std::find_if(queue_.begin(), queue_.end(),
                                    [](const auto& waiting) { return waiting->cancelled(); });
    if (first == queue_.end()) return;
    const std::shared_ptr<Generation> generation = std::move(*first);
    queue_.erase(first);
    Outcome outcome;
    outcome.reason = FinishReason::kCancelled;
    outcome.prompt_tokens = int64_t(generation->request_.prompt.size());
    outcome.timings.queue = seconds(Clock::now() - generation->opened_);
    close(*generation, outcome);
  }
}

void StepLoop::admit_next() {
  row_.emplace();
  Row& row = *row_;
  row.generation = std::move(queue_.front());
  queue_.pop_front();
  Generation& generation = *row.generation;
  generation.leave_queue();
  const int64_t prompt = int64_t(generation.request_.prompt.size());
  row.admitted = Clock::now();
  row.outcome.prompt_tokens = prompt;
  row.outcome.timings.queue = seconds(row.admitted - generation.opened_);

  const Admission admission = executor_.admit(generation.request_);
  row.live = true;
  row.stored = row.outcome.cached_tokens = admission.cached_tokens;
  if (row.stored < 0 || row.stored >= prompt)
    fail(ErrorCode::kInternal, "{} of {} prompt tokens were reported as cached", row.stored,
         prompt);
  if (is_logged(LogLevel::kDebug))
    log_debug("admitted", {{"request", generation.id()},
                           {"prompt", prompt},
                           {"cached", admission.cached_tokens},
                           {"max_tokens", admission.max_tokens},
                           {"bytes", admission.bytes}});
  if (!generation.sink_->on_admitted(admission)) {
    finish(FinishReason::kCancelled);
  } else if (admission.max_tokens <= 0) {
    finish(FinishReason::kLength);
  }
}

Work StepLoop::next_work() const {
  const Request& request = row_->generation->request_;
  const int64_t left = int64_t(request.prompt.size()) - row_->stored;
  if (left <= 0) return {request.id, 1, Output::kSample};
  int64_t tokens = schedule_.step_tokens(left);
  if (schedule_.respects_limits) tokens = std::min(tokens, executor_.append_limit(request.id));
  return {request.id, int(tokens), tokens == left ? Output::kSample : Output::kNone};
}

void StepLoop::step() {
  Generation& generation = *row_->generation;
  if (generation.cancelled()) return finish(FinishReason::kCancelled);
  const Work work = next_work();
  const StepPlan plan{{work}, &generation.stop_};
  const StepPlan next{{{work.id, 1, Output::kSample}}, &generation.stop_};
  const Clock::time_point begin = Clock::now();
  const StepResults results = steps_.run(plan, work.output == Output::kSample ? &next : nullptr);
  if (is_logged(LogLevel::kTrace))
    log_trace("step", {{"request", work.id},
                       {"tokens", work.tokens},
                       {"ms", fmt::format("{:.2f}", 1e3 * seconds(Clock::now() - begin))}});
  if (results.stopped) {
    if (generation.cancelled()) return finish(FinishReason::kCancelled);
    fail(ErrorCode::kInternal, "a step stopped although nobody asked for it");
  }
  if (results.rows.size() != 1 || results.rows[0].id != work.id)
    fail(ErrorCode::kInternal, "a step of one row returned {} results", results.rows.size());
  apply(work, results.rows[0]);
}

void StepLoop::apply(const Work& work, const RowResult& result) {
  Row& row = *row_;
  if (result.error) return finish(FinishReason::kError, result.error);
  if ((work.output == Output::kSample) != result.token.has_value())
    fail(ErrorCode::kInternal, "a step returned {} token",
         result.token ? "an unasked" : "no sampled");

  Sink& sink = *row.generation->sink_;
  const int64_t prompt = row.outcome.prompt_tokens;
  if (row.stored < prompt) {
    row.stored += work.tokens;
    sink.on_progress(row.stored, prompt);
  }
  if (!result.token) return;
  if (!row.first_token) row.first_token = Clock::now();
  ++row.outcome.completion_tokens;
  if (result.finished != FinishReason::kStop && !sink.on_token(row.next_sequence++, *result.token))
    return finish(FinishReason::kStop);
  if (result.finished) finish(*result.finished);
}

void StepLoop::finish(FinishReason reason, std::optional<Error> error) {
  Row row = std::move(*row_);
  row_.reset();
  const Request& request = row.generation->request_;
  const Clock::time_point now = Clock::now();
  row.outcome.reason = reason;
  row.outcome.error = std::move(error);
  row.outcome.timings.prefill = seconds(row.first_token.value_or(now) - row.admitted);
  row.outcome.timings.decode = seconds(now - row.first_token.value_or(now));
  const bool whole = steps_.drain() && reason != FinishReason::kError;
  const bool keep = whole && !request.cache.session.empty();
  try {
    if (row.live) executor_.release(request.id, keep ? Release::kKeep : Release::kDrop);
  } catch (const std::exception& failure) {
    log_error("release", {{"request", request.id}, {"error", failure.what()}});
  }
  close(*row.generation, row.outcome);
}

void StepLoop::close(Generation& generation, const Outcome& outcome) {
  try {
    generation.sink_->on_done(outcome);
  } catch (const std::exception& failure) {
    log_error("sink", {{"request", generation.id()}, {"error", failure.what()}});
  }
  generation.sink_.reset();
  finished_(generation.id());
}

}  // namespace mantou
