// The engine: one thread that owns an Executor and runs the requests given to it, many at once.
//
// Owned by main (or the server's composition); open(), cancel() and shutdown() may be called from
// any thread but the engine's own sinks must not call shutdown(). Sinks are called on the engine
// thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/mailbox.h"
#include "engine/executor.h"
#include "engine/generation.h"
#include "engine/step_loop.h"

namespace mantou {

struct EngineOptions {
  int max_queued = 64;  // requests that may wait for admission
  StepLoopOptions steps = {};
};

class Engine {
 public:
  explicit Engine(std::unique_ptr<Executor> executor, EngineOptions options = {});
  ~Engine();  // cancels what still runs
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const Capabilities& capabilities() const { return capabilities_; }
  // Tokens that a row may have, prompt and answer together: the context, or less where the memory
  // for states is too small for it.
  int64_t longest_row() const { return longest_row_; }

  // Queues the request; its id is given here. Errors, after which the sink is gone without a call:
  // kResourceExhausted (the queue is full), kUnavailable (shutting down).
  std::shared_ptr<Generation> open(Request request, std::unique_ptr<Sink> sink);
  // Several at once: all or none. Those of them that can never run are told so before any other is
  // admitted.
  std::vector<std::shared_ptr<Generation>> open(std::vector<Request> requests,
                                                std::vector<std::unique_ptr<Sink>> sinks);

  // Takes no new requests, waits up to `grace` for the open ones, cancels those that are left and
  // ends the thread. True when none had to be cancelled. Later calls do nothing.
  bool shutdown(std::chrono::milliseconds grace);

  // Takes no new requests; open ones run on.
  void stop_accepting();
  bool accepting() const;

  // As of the last turn; an answer counts as ended before its sink hears of it. Any thread.
  EngineStats stats() const;

 private:
  void run();
  void finished(RequestId id);

  const EngineOptions options_;
  const std::unique_ptr<Executor> executor_;
  const Capabilities capabilities_;
  const int64_t longest_row_;
  const std::shared_ptr<Generation::Shared> shared_ = std::make_shared<Generation::Shared>();
  Mailbox<std::vector<std::shared_ptr<Generation>>> mailbox_;

  mutable std::mutex mutex_;  // of the members below
  std::condition_variable all_finished_;
  std::map<RequestId, std::shared_ptr<Generation>> open_;
  RequestId last_id_ = 0;
  bool accepting_ = true;
  uint64_t refused_ = 0;

  std::mutex join_mutex_;
  std::thread thread_;
};

}  // namespace mantou
