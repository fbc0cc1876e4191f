// The one class of shared mutable state between threads: a queue of messages, many writers, one or
// more readers. A closed mailbox takes nothing new; what it holds can still be read.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

namespace mantou {

template <class T>
class Mailbox {
 public:
  explicit Mailbox(size_t capacity = std::numeric_limits<size_t>::max()) : capacity_(capacity) {}
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // False (and `message` is untouched) when the mailbox is full or closed. Never blocks for long.
  bool push(T&& message) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || messages_.size() >= capacity_) return false;
      messages_.push_back(std::move(message));
    }
    ready_.notify_one();
    return true;
  }

  // Waits for a message; nothing once the mailbox is closed and empty.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return closed_ || !messages_.empty(); });
    return take();
  }

  std::optional<T> try_pop() {
    std::lock_guard lock(mutex_);
    return take();
  }

  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

 private:
  std::optional<T> take() {
    if (messages_.empty()) return std::nullopt;
    std::optional<T> message(std::move(messages_.front()));
    messages_.pop_front();
    return message;
  }

  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> messages_;
  bool closed_ = false;
};

}  // namespace mantou
