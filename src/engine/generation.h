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
#include <utility>

#include "base/error.h"
#include "base/stop_flag.h"
#include "engine/executor.h"
#include "engine/request.h"

namespace mantou {

struct Timings {
  double queue = 0;    // seconds from open() to admission
  double prefill = 0;  // … to the first token
  double decode = 0;   // … to the end
};

struct Outcome {
  FinishReason reason = FinishReason::kError;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;      // of the prompt, state that was reused
  int64_t completion_tokens = 0;  // sampled tokens, the end id included
  Timings timings;
  std::optional<Error> error;  // iff reason is kError
};

// Receives what a request generates. Calls come in the order on_admitted, (on_progress)*,
// (on_token)*, on_done; on_done comes exactly once, also without the others. None may block.
class Sink {
 public:
  virtual ~Sink() = default;
  // False: nobody wants the answer any more (the outcome is kCancelled).
  virtual bool on_admitted(const Admission& admission) = 0;
  // Prompt tokens whose state exists, after each chunk of the prompt.
  virtual void on_progress(int64_t done, int64_t total) = 0;
  // A committed token that belongs to the answer: end ids and stop ids do not arrive here.
  // `sequence` counts from 0 without gaps. False: the answer is complete (the outcome is kStop).
  virtual bool on_token(uint64_t sequence, const GeneratedToken& token) = 0;
  virtual void on_done(const Outcome& outcome) = 0;
};

class Generation {
 public:
  using Clock = std::chrono::steady_clock;

  // `waiting` counts the requests that wait for admission; this one takes a place there.
  Generation(Request request, std::unique_ptr<Sink> sink, std::shared_ptr<std::atomic<int>> waiting)
      : request_(std::move(request)), sink_(std::move(sink)), waiting_(std::move(waiting)) {
    waiting_->fetch_add(1);
  }
  ~Generation() { leave_queue(); }
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  RequestId id() const { return request_.id; }

  // Takes effect within one layer's time when the row runs; a waiting request gives its place in
  // the queue back at once and ends at the next step. Without effect once the request has ended.
  void cancel() {
    stop_.set();
    leave_queue();
  }
  bool cancelled() const { return stop_.is_set(); }

 private:
  friend class StepLoop;  // reads the request and drives the sink, on the engine thread

  void leave_queue() {
    if (in_queue_.exchange(false)) waiting_->fetch_sub(1);
  }

  const Request request_;
  std::unique_ptr<Sink> sink_;  // engine thread; empty after on_done
  const Clock::time_point opened_ = Clock::now();
  StopFlag stop_;
  std::shared_ptr<std::atomic<int>> waiting_;
  std::atomic<bool> in_queue_{true};
};

}  // namespace mantou
