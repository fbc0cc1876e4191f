#include "base/thread_pool.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace mantou {
namespace {

// How long an idle thread spins before it sleeps: longer than the serial work between the regions
// of a step (sampling over a large vocabulary included), short against a person's patience with a
// warm CPU.
constexpr std::chrono::microseconds kSpin(500);
constexpr int kPausesPerClockRead = 64;

void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// Spins until done() or for kSpin; the last value of done().
template <class Done>
bool spin_until(Done done) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      if (done()) return true;
      cpu_pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return done();
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads < 1)
    fail(ErrorCode::kInvalidArgument, "a thread pool needs a thread, not {}", threads);
  workers_.reserve(size_t(threads - 1));
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error& error) {
    const size_t started = workers_.size();
    shut_down();
    fail(ErrorCode::kResourceExhausted,
         "cannot start {} threads ({} started): {}; use fewer threads", threads, started + 1,
         error.what());
  }
}

ThreadPool::~ThreadPool() { shut_down(); }

void ThreadPool::shut_down() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void ThreadPool::run_erased(int chunks, Body call, const void* body) {
  call_.store(call, std::memory_order_relaxed);
  body_.store(body, std::memory_order_relaxed);
  chunks_.store(chunks, std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  unfinished_.store(chunks, std::memory_order_relaxed);
  const uint64_t region = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  ticket_.store(region << 32 | uint32_t(chunks), std::memory_order_release);
  epoch_.fetch_add(1);  // sequentially consistent: ordered before the look for sleepers in notify
  epoch_.notify_all();

  while (run_one(0)) {
  }
  wait_until_done();
  if (failed_.load(std::memory_order_relaxed))
    std::rethrow_exception(std::exchange(error_, nullptr));
}

// Claims and runs one chunk; false when none is left. A successful exchange proves that the region
// was live, and its fields stable, since the ticket was loaded.
bool ThreadPool::run_one(int thread) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  Body call;
  const void* body;
  int chunks;
  do {
    if (uint32_t(ticket) == 0) return false;
    call = call_.load(std::memory_order_relaxed);
    body = body_.load(std::memory_order_relaxed);
    chunks = chunks_.load(std::memory_order_relaxed);
  } while (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                          std::memory_order_acquire));
  if (!failed_.load(std::memory_order_relaxed)) {
    try {
      call(body, chunks - int(uint32_t(ticket)), thread);
    } catch (...) {
      if (!failed_.exchange(true)) error_ = std::current_exception();
    }
  }
  if (unfinished_.fetch_sub(1) == 1) unfinished_.notify_all();
  return true;
}

void ThreadPool::wait_until_done() {
  const auto done = [this] { return unfinished_.load(std::memory_order_acquire) == 0; };
  if (spin_until(done)) return;
  while (!done()) {
    const int left = unfinished_.load(std::memory_order_acquire);
    if (left != 0) unfinished_.wait(left);
  }
}

void ThreadPool::work(int thread) {
  for (;;) {
    const uint32_t seen = epoch_.load(std::memory_order_acquire);
    while (run_one(thread)) {
    }
    if (stop_.load()) return;
    if (!spin_until([&] { return epoch_.load(std::memory_order_acquire) != seen; }))
      epoch_.wait(seen);
  }
}

}  // namespace mantou
