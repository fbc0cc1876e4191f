#include "decoding/mask_worker.h"

#include <utility>

namespace mantou::decoding {

MaskWorker::~MaskWorker() {
  jobs_.close();
  if (thread_.joinable()) thread_.join();
}

std::future<void> MaskWorker::run(std::function<void()> job) {
  if (!thread_.joinable())
    thread_ = std::thread([this] {
      while (auto next = jobs_.pop()) (*next)();
    });
  std::packaged_task<void()> task(std::move(job));
  std::future<void> done = task.get_future();
  jobs_.push(std::move(task));
  return done;
}

}  // namespace mantou::decoding
