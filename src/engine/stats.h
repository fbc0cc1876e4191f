// What an engine has done and is doing, as plain values: counters since its start, what is open now
// and how long things took. The engine thread counts in an EngineStats of its own and publishes a
// copy on the StatsBoard each turn; any thread reads the last one. Neither waits for the other
// longer than a pointer takes to change hands.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "engine/request.h"

namespace mantou {

// Upper bounds of the buckets: of seconds, and of tokens.
inline constexpr std::array<double, 24> kSecondsBounds = {
    .001, .0025, .005, .01, .025, .05, .075, .1, .15, .25, .5,  .75,
    1,    2.5,   5,    7.5, 10,   25,  50,   75, 100, 250, 500, 1000};
inline constexpr std::array<double, 18> kTokensBounds = {
    1,    2,    5,    10,    20,    50,    100,    200,    500,
    1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};

// How many values fell between which bounds.
class Histogram {
 public:
  // `bounds` rise, are at most as many as kSecondsBounds and live as long as the program.
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds) {}

  void add(double value) {
    const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value);
    ++counts_[size_t(at - bounds_.begin())];
    ++count_;
    sum_ += value;
  }

  std::span<const double> bounds() const { return bounds_; }
  uint64_t in_bucket(size_t i) const { return counts_[i]; }  // bounds().size(): above the last
  uint64_t count() const { return count_; }
  double sum() const { return sum_; }
  double mean() const { return count_ > 0 ? sum_ / double(count_) : 0; }

  // The value that a part `q` (0 … 1) of all are at most, by even spread within its bucket; the
  // last bound when it lies above all of them, 0 without values.
  double quantile(double q) const {
    const double wanted = q * double(count_);
    double before = 0;
    for (size_t i = 0; i < bounds_.size(); ++i) {
      const double here = double(counts_[i]);
      if (here > 0 && before + here >= wanted) {
        const double low = i == 0 ? 0 : bounds_[i - 1];
        return low + (bounds_[i] - low) * (wanted - before) / here;
      }
      before += here;
    }
    return count_ > 0 ? bounds_.back() : 0;
  }

 private:
  std::span<const double> bounds_;
  std::array<uint64_t, kSecondsBounds.size() + 1> counts_{};
  uint64_t count_ = 0;
  double sum_ = 0;
};
static_assert(kTokensBounds.size() <= kSecondsBounds.size());

// Tokens a second over the last ten seconds, from totals noted now and then.
class RateWindow {
 public:
  using Clock = std::chrono::steady_clock;
  struct Totals {
    uint64_t prompt = 0, generated = 0;
  };
  struct Rates {
    double prompt = 0, generated = 0;
  };

  void note(Clock::time_point now, Totals totals) {
    if (marks_.empty()) marks_.push_back({now, {}});
    if (now - marks_.back().time >= std::chrono::seconds(1)) marks_.push_back({now, last_});
    while (marks_.size() > 2 && marks_[1].time <= now - kWindow) marks_.erase(marks_.begin());
    last_ = totals;
  }

  // From what stood at the beginning of the window, or at the first note within it.
  Rates at(Clock::time_point now) const {
    if (marks_.empty()) return {};
    const Mark* from = &marks_.front();
    for (const Mark& mark : marks_)
      if (mark.time <= now - kWindow) from = &mark;
    const Totals base = marks_.back().time <= now - kWindow ? last_ : from->totals;
    const double seconds =
        std::chrono::duration<double>(std::min<Clock::duration>(now - from->time, kWindow)).count();
    if (seconds <= 0) return {};
    return {double(last_.prompt - base.prompt) / seconds,
            double(last_.generated - base.generated) / seconds};
  }

 private:
  static constexpr std::chrono::seconds kWindow{10};
  struct Mark {
    Clock::time_point time;
    Totals totals;  // of what was done before
  };
  std::vector<Mark> marks_;
  Totals last_;
};

// What an Executor keeps of earlier rows for later prompts.
struct CacheStats {
  uint64_t entries = 0, bytes = 0, capacity = 0, evicted = 0;
};

// What a row was asked for.
struct RowSettings {
  SamplingParams sampling;
  Limits limits;
};

// A request that was admitted and has not ended.
struct RowStats {
  int slot = 0;  // 0 … max_rows - 1, its own while it lives
  RequestId id = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0;
  int64_t stored_tokens = 0;  // of the prompt, state that exists
  int64_t completion_tokens = 0, max_tokens = 0;
  double seconds = 0;  // since it was admitted
  std::shared_ptr<const RowSettings> settings;
};

struct EngineStats {
  // Since the start; these only rise.
  std::array<uint64_t, 4> finished{};     // by FinishReason, without those of `invalid`
  uint64_t invalid = 0;                   // ended by an error of the request's own
  uint64_t refused = 0;                   // the queue was full
  uint64_t prompt_tokens = 0;             // forwarded
  uint64_t cached_tokens = 0;             // of prompts, not forwarded
  uint64_t cache_queries = 0;             // prompt tokens that were looked for among kept state
  uint64_t completion_tokens = 0;         // sampled, end ids included
  uint64_t steps = 0, rows_of_steps = 0;  // summed over the steps
  int64_t longest = 0;                    // prompt and answer of the longest row, in tokens

  Histogram first_token{kSecondsBounds};  // from open() on
  Histogram between_tokens{kSecondsBounds};
  Histogram queue{kSecondsBounds};                               // from open() to admission
  Histogram prefill{kSecondsBounds};                             // from there to the first token
  Histogram decode{kSecondsBounds};                              // from there to the end
  Histogram requests{kSecondsBounds};                            // all of it
  Histogram prompts{kTokensBounds}, completions{kTokensBounds};  // tokens of ended requests

  // Now.
  int waiting = 0;
  int max_rows = 0;
  uint64_t state_budget = 0, state_reserved = 0;  // bytes
  CacheStats cache;
  std::vector<RowStats> rows;
  RateWindow rates;

  uint64_t count(FinishReason reason) const { return finished[size_t(reason)]; }
};

class StatsBoard {
 public:
  void publish(EngineStats stats) {
    auto next = std::make_shared<const EngineStats>(std::move(stats));
    std::lock_guard lock(mutex_);
    latest_.swap(next);  // the old one goes without the lock
  }
  std::shared_ptr<const EngineStats> latest() const {
    std::lock_guard lock(mutex_);
    return latest_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const EngineStats> latest_ = std::make_shared<const EngineStats>();
};

}  // namespace mantou
