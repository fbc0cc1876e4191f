// One request on its way through the engine: who receives its tokens (Sink), how it ended (Outcome)
// and the handle by which it is cancelled (Generation).
//
// The engine owns the Sink and calls it on the engine thread only; the handle is shared and may be
// used from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/stop_flag.h"
#include "engine/executor.h"
#include "engine/request.h"
#include "engine/stats.h"

namespace mantou {

struct Timings {
  double queue = 0;    // seconds from open() to admission
  double prefill = 0;  // … to the first token
  double decode = 0;   // … to the end
};

enum class CancelReason {
  kRequested,       // Generation::cancel
  kConsumerClosed,  // the sink did not want the answer
  kConsumerIdle,    // the sink was behind for too long
  kShutdown,        // the engine ends
};

struct Outcome {
  FinishReason reason = FinishReason::kError;
  CancelReason cancel = CancelReason::kRequested;  // when reason is kCancelled
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;      // of the prompt, state that was reused
  int64_t completion_tokens = 0;  // sampled tokens, the end id included
  Timings timings;
  std::optional<Error> error;  // iff reason is kError
  std::vector<Plan::Bypass> bypassed = {};

  // The error lies in the request, which could not be answered as it is (a grammar, say, that turns
  // out to be too large): nothing failed here.
  bool is_refusal() const {
    return error && (error->code() == ErrorCode::kInvalidArgument ||
                     error->code() == ErrorCode::kUnsupported);
  }
};

enum class Flow {
  kMore,
  kPause,   // the reader is behind: nothing more until Generation::resume
  kStop,    // the answer is complete (the outcome is kStop)
  kClosed,  // nobody wants the rest (the outcome is kCancelled)
};

// Receives what a request generates. Calls come in the order on_admitted, (on_progress |
// on_scores)*, (on_token)*, on_done; on_done comes exactly once, also without the others. None may
// block.
class Sink {
 public:
  virtual ~Sink() = default;
  // False: nobody wants the answer any more (the outcome is kCancelled).
  virtual bool on_admitted(const Admission& admission) = 0;
  // Prompt tokens whose state exists, after each chunk of the prompt.
  virtual void on_progress(int64_t done, int64_t total) = 0;
  // Of the prompt's next tokens, for a request with scores.
  virtual void on_scores(std::span<const GeneratedToken> /*scores*/) {}
  // A committed token that belongs to the answer: end ids and stop ids do not arrive here.
  // `sequence` counts from 0 without gaps. After kPause one more token may come, which was on its
  // way.
  virtual Flow on_token(uint64_t sequence, const GeneratedToken& token) = 0;
  virtual void on_done(const Outcome& outcome) = 0;
};

class Generation {
 public:
  using Clock = std::chrono::steady_clock;

  // What the generations of an engine share with its thread.
  struct Shared {
    std::atomic<int> waiting{0};  // requests that wait for admission
    StopFlag step_stop;           // stops the step that runs
    StatsBoard stats;
  };

  // Takes a place among those that wait.
  Generation(Request request, std::unique_ptr<Sink> sink, std::shared_ptr<Shared> shared,
             Clock::time_point opened)
      : request_(std::move(request)),
        sink_(std::move(sink)),
        opened_(opened),
        shared_(std::move(shared)) {
    shared_->waiting.fetch_add(1);
  }
  ~Generation() { leave_queue(); }
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  RequestId id() const { return request_.id; }

  // Takes effect within one layer's time when no other row would lose by it, else after the step; a
  // waiting request gives its place in the queue back at once and ends at the next step. Without
  // effect once the request has ended. May be called by a signal handler.
  void cancel(CancelReason why = CancelReason::kRequested) {
    if (!cancelled()) why_.store(why);
    stop_.set();
    leave_queue();
    if (stops_step_.load()) shared_->step_stop.set();
  }
  bool cancelled() const { return stop_.is_set(); }
  CancelReason why() const { return why_.load(); }  // once it is cancelled

  // The reader of a sink that paused has caught up.
  void resume() { paused_.store(false); }

 private:
  friend class StepLoop;  // reads the request and drives the sink, on the engine thread

  void leave_queue() {
    if (in_queue_.exchange(false)) shared_->waiting.fetch_sub(1);
  }

  const Request request_;
  std::unique_ptr<Sink> sink_;  // engine thread; empty after on_done
  const Clock::time_point opened_;
  const std::shared_ptr<Shared> shared_;
  StopFlag stop_;
  std::atomic<CancelReason> why_{CancelReason::kRequested};
  std::atomic<bool> in_queue_{true};
  std::atomic<bool> paused_{false};
  std::atomic<bool> stops_step_{false};  // the step that runs may be stopped for this request
};

}  // namespace mantou
