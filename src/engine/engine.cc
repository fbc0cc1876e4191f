#include "engine/engine.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/token_limit.h"

namespace mantou {

Engine::Engine(std::unique_ptr<Executor> executor, EngineOptions options)
    : options_(options),
      executor_(std::move(executor)),
      capabilities_(executor_->capabilities()),
      longest_row_(mantou::longest_row(*executor_, options_.steps.state_bytes)),
      thread_([this] { run(); }) {}

Engine::~Engine() { shutdown(std::chrono::milliseconds(0)); }

std::shared_ptr<Generation> Engine::open(Request request, std::unique_ptr<Sink> sink) {
  std::vector<Request> requests;
  requests.push_back(std::move(request));
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::move(sink));
  return open(std::move(requests), std::move(sinks))[0];
}

std::vector<std::shared_ptr<Generation>> Engine::open(std::vector<Request> requests,
                                                      std::vector<std::unique_ptr<Sink>> sinks) {
  std::lock_guard lock(mutex_);
  if (!accepting_) fail(ErrorCode::kUnavailable, "the engine is shutting down");
  // A lone request of many choices may always wait.
  const int waiting = shared_->waiting.load();
  if (waiting > 0 && waiting + int(requests.size()) > std::max(1, options_.max_queued)) {
    refused_ += requests.size();
    fail(ErrorCode::kResourceExhausted, "{} requests are waiting already; try again later",
         waiting);
  }
  std::vector<std::shared_ptr<Generation>> generations;
  for (size_t i = 0; i < requests.size(); i++) {
    requests[i].id = ++last_id_;
    generations.push_back(std::make_shared<Generation>(std::move(requests[i]), std::move(sinks[i]),
                                                       shared_, Generation::Clock::now()));
  }
  for (const auto& generation : generations) open_.emplace(generation->id(), generation);
  auto message = generations;
  mailbox_.push(std::move(message));
  return generations;
}

void Engine::stop_accepting() {
  std::lock_guard lock(mutex_);
  accepting_ = false;
}

bool Engine::accepting() const {
  std::lock_guard lock(mutex_);
  return accepting_;
}

EngineStats Engine::stats() const {
  EngineStats stats = *shared_->stats.latest();
  stats.waiting = shared_->waiting.load();
  stats.max_rows = capabilities_.max_rows;
  std::lock_guard lock(mutex_);
  stats.refused = refused_;
  return stats;
}

bool Engine::shutdown(std::chrono::milliseconds grace) {
  std::lock_guard join_lock(join_mutex_);
  if (!thread_.joinable()) return true;
  bool drained = false;
  {
    std::unique_lock lock(mutex_);
    accepting_ = false;
    drained = all_finished_.wait_for(lock, grace, [this] { return open_.empty(); });
    for (const auto& [id, generation] : open_) generation->cancel(CancelReason::kShutdown);
  }
  mailbox_.close();
  thread_.join();
  return drained;
}

void Engine::run() {
  // How soon it is seen that a reader has caught up, when nothing else goes on.
  constexpr std::chrono::milliseconds kLook{5};
  StepLoop loop(*executor_, options_.steps, shared_, [this](RequestId id) { finished(id); });
  const auto add = [&](std::vector<std::shared_ptr<Generation>> opened) {
    for (auto& generation : opened) loop.add(std::move(generation));
  };
  for (;;) {
    if (!loop.has_work()) {
      auto next = mailbox_.pop();
      if (!next) return;
      add(*std::move(next));
    }
    while (auto next = mailbox_.try_pop()) add(*std::move(next));
    if (!loop.turn() && loop.has_work()) std::this_thread::sleep_for(kLook);
  }
}

void Engine::finished(RequestId id) {
  std::shared_ptr<Generation> last;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  const auto at = open_.find(id);
  last = std::move(at->second);
  open_.erase(at);
  if (open_.empty()) all_finished_.notify_all();
}

}  // namespace mantou
