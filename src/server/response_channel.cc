#include "server/response_channel.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "server/sse.h"

namespace mantou::server {

ResponseChannel::ResponseChannel(Options options, std::function<void()> wake)
    : options_(std::move(options)),
      wake_(std::move(wake)),
      close_(!options_.keep_alive || options_.http_1_0) {}

void ResponseChannel::begin(int status, std::string_view content_type, const Headers& headers,
                            std::string_view framing) {
  status_ = status;
  auto out = std::back_inserter(pending_);
  fmt::format_to(out, "HTTP/1.1 {} {}\r\n", status, reason_phrase(status));
  if (!content_type.empty()) fmt::format_to(out, "Content-Type: {}\r\n", content_type);
  for (const Headers* some : {&options_.headers, &headers}) {
    for (const auto& [name, value] : *some) fmt::format_to(out, "{}: {}\r\n", name, value);
  }
  fmt::format_to(out, "{}{}\r\n", framing, close_ ? "Connection: close\r\n" : "");
}

void ResponseChannel::send(HttpResponse response) {
  std::unique_lock lock(mutex_);
  if (status_ != 0 || gone_) return;
  const bool empty = response.status == 204;
  begin(response.status, empty ? std::string_view() : response.content_type, response.headers,
        empty ? std::string() : fmt::format("Content-Length: {}\r\n", response.body.size()));
  if (!options_.head_only && !empty) pending_ += response.body;
  complete_ = true;
  notify(lock);
}

bool ResponseChannel::begin_stream(std::string_view content_type) {
  std::unique_lock lock(mutex_);
  if (status_ != 0 || gone_) return false;
  streaming_ = true;
  events_ = content_type == kEventStream;
  begin(200, content_type, {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}},
        options_.http_1_0 ? "" : "Transfer-Encoding: chunked\r\n");
  notify(lock);
  return true;
}

bool ResponseChannel::write(std::string_view bytes) {
  std::unique_lock lock(mutex_);
  return write(bytes, lock);
}

bool ResponseChannel::write(std::string_view bytes, std::unique_lock<std::mutex>& lock) {
  if (!streaming_ || complete_ || gone_ || overflow_) return false;
  if (bytes.empty() || options_.head_only) return true;
  if (pending_.size() + bytes.size() > options_.pending_limit) {
    overflow_ = true;
    pending_.clear();
    notify(lock);
    return false;
  }
  if (options_.http_1_0) {
    pending_ += bytes;
  } else {
    fmt::format_to(std::back_inserter(pending_), "{:x}\r\n", bytes.size());
    pending_ += bytes;
    pending_ += "\r\n";
  }
  notify(lock);
  return true;
}

void ResponseChannel::end(bool close) {
  std::unique_lock lock(mutex_);
  if (!streaming_ || complete_ || gone_ || overflow_) return;
  complete_ = true;
  close_ |= close;
  if (!options_.http_1_0 && !options_.head_only) pending_ += "0\r\n\r\n";
  notify(lock);
}

bool ResponseChannel::started() const {
  std::lock_guard lock(mutex_);
  return status_ != 0;
}

int ResponseChannel::status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

void ResponseChannel::on_gone(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (complete_) return;
    if (!gone_) {
      gone_callback_ = std::move(callback);
      return;
    }
  }
  callback();
}

ResponseChannel::Batch ResponseChannel::take() {
  std::lock_guard lock(mutex_);
  woken_ = false;
  return {std::exchange(pending_, {}), complete_, close_, overflow_};
}

void ResponseChannel::set_gone() {
  std::function<void()> callback;
  {
    std::lock_guard lock(mutex_);
    if (gone_ || complete_) return;
    gone_ = true;
    callback = std::exchange(gone_callback_, nullptr);
  }
  if (callback) callback();
}

bool ResponseChannel::probe() {
  std::unique_lock lock(mutex_);
  if (complete_) return true;
  if (streaming_) {
    if (events_) write(":\n\n", lock);
    return true;
  }
  if (options_.http_1_0) return false;
  pending_ += "HTTP/1.1 100 Continue\r\n\r\n";
  notify(lock);
  return true;
}

void ResponseChannel::close_after() {
  std::lock_guard lock(mutex_);
  close_ = true;
}

void ResponseChannel::notify(std::unique_lock<std::mutex>& lock) {
  const bool first = !std::exchange(woken_, true);
  if (complete_) gone_callback_ = nullptr;
  lock.unlock();
  if (first) wake_();
}

}  // namespace mantou::server
