// A fork-join pool for short parallel regions: the kernels of a step.
//
// One thread owns a pool and calls run(); it takes part in the work. Chunks are claimed one by one,
// so threads that hold a slow or shared core simply claim fewer. run() returns when every claimed
// chunk is done; it never waits for a worker that sleeps or was taken off its core before it
// claimed one. Idle workers spin for a bounded time (the gaps between the regions of a step are
// microseconds), then sleep. run() allocates nothing, must not be called from inside a region, and
// not by two threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

namespace mantou {

class ThreadPool {
 public:
  // `threads` counts the caller: threads - 1 workers are started. At least 1; cpu_count.h tells how
  // many there should be.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return int(workers_.size()) + 1; }

  // Calls f(chunk, thread) once for each chunk in [0, chunks), claimed in ascending order; thread
  // is in [0, threads()), 0 being the caller. The first exception of a chunk is rethrown here after
  // the region; chunks that were not yet started by then are skipped.
  template <class F>
  void run(int chunks, const F& f) {
    if (workers_.empty() || chunks <= 1) {
      for (int chunk = 0; chunk < chunks; ++chunk) f(chunk, 0);
      return;
    }
    run_erased(
        chunks,
        [](const void* body, int chunk, int thread) {
          (*static_cast<const F*>(body))(chunk, thread);
        },
        &f);
  }

 private:
  using Body = void (*)(const void* body, int chunk, int thread);

  void run_erased(int chunks, Body call, const void* body);
  bool run_one(int thread);
  void wait_until_done();
  void work(int thread);
  void shut_down();

  std::vector<std::thread> workers_;

  // The region. The owner writes these while no chunk can be claimed; a worker reads them between a
  // load of ticket_ and the exchange that claims a chunk from the very same value.
  std::atomic<Body> call_{nullptr};
  std::atomic<const void*> body_{nullptr};
  std::atomic<int> chunks_{0};
  std::exception_ptr error_;  // of the thread that set failed_
  std::atomic<bool> failed_{false};
  std::atomic<bool> stop_{false};

  alignas(64) std::atomic<uint64_t> ticket_{0};  // region number << 32 | chunks not yet claimed
  alignas(64) std::atomic<uint32_t> epoch_{0};   // idle workers wait for it to change
  alignas(64) std::atomic<int> unfinished_{0};   // chunks of the region that are not done
};

}  // namespace mantou
