// The thread on which masks of grammars are computed, while the model is at work on the tokens
// before them. Owned by the Executor; used from the engine thread.
#pragma once

#include <functional>
#include <future>
#include <thread>

#include "base/mailbox.h"

namespace mantou::decoding {

class MaskWorker {
 public:
  MaskWorker() = default;
  ~MaskWorker();  // does what is queued first
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;

  // Jobs run in order. What one throws leaves through its future.
  std::future<void> run(std::function<void()> job);

 private:
  Mailbox<std::packaged_task<void()>> jobs_;
  std::thread thread_;  // begins with the first job
};

}  // namespace mantou::decoding
