// Histograms, rates and the numbers that an engine publishes. Quantiles are Prometheus's
// histogram_quantile: even spread within a bucket.
#include "engine/stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/engine.h"
#include "engine/fake_executor.h"

namespace mantou {
namespace {

using namespace std::chrono_literals;
using Time = RateWindow::Clock::time_point;

TEST(HistogramTest, CountsByUpperBoundInclusive) {
  constexpr double kBounds[] = {1, 2, 4};
  Histogram histogram(kBounds);
  for (const double value : {0.5, 1.0, 1.5, 2.0, 3.0, 100.0}) histogram.add(value);
  EXPECT_EQ(histogram.in_bucket(0), 2u);
  EXPECT_EQ(histogram.in_bucket(1), 2u);
  EXPECT_EQ(histogram.in_bucket(2), 1u);
  EXPECT_EQ(histogram.in_bucket(3), 1u);
  EXPECT_EQ(histogram.count(), 6u);
  EXPECT_DOUBLE_EQ(histogram.sum(), 108);
  EXPECT_DOUBLE_EQ(histogram.mean(), 18);
}

TEST(HistogramTest, QuantilesSpreadABucketEvenly) {
  constexpr double kBounds[] = {1, 2, 4};
  Histogram histogram(kBounds);
  EXPECT_DOUBLE_EQ(histogram.quantile(.5), 0);
  for (int i = 0; i < 10; i++) histogram.add(3);
  EXPECT_DOUBLE_EQ(histogram.quantile(.5), 3);
  EXPECT_DOUBLE_EQ(histogram.quantile(.9), 3.8);
  for (int i = 0; i < 90; i++) histogram.add(50);
  EXPECT_DOUBLE_EQ(histogram.quantile(.5), 4) << "above the last bound that bound is all we know";
}

TEST(RateWindowTest, CountsTheLastTenSeconds) {
  RateWindow window;
  Time now{};
  EXPECT_EQ(window.at(now).generated, 0);
  window.note(now, {});
  // 20 tokens a second for half a minute.
  uint64_t tokens = 0;
  for (int tenth = 1; tenth <= 300; tenth++) window.note(now += 100ms, {0, tokens += 2});
  EXPECT_NEAR(window.at(now).generated, 20, 2);
  EXPECT_NEAR(window.at(now + 5s).generated, 10, 2);
  EXPECT_EQ(window.at(now + 11s).generated, 0);
  // What was done before a pause is not counted again after it.
  now += 100s;
  window.note(now, {30, tokens + 50});
  EXPECT_NEAR(window.at(now).generated, 5, 1);
  EXPECT_NEAR(window.at(now).prompt, 3, .1);
}

TEST(RateWindowTest, ARateThatChangedCountsNoMoreAfterTheWindow) {
  RateWindow window;
  Time now{};
  uint64_t tokens = 0;
  for (int i = 0; i < 1000; i++) window.note(now += 100ms, {0, tokens += 10});
  for (int i = 0; i < 200; i++) window.note(now += 100ms, {0, tokens += 1});
  EXPECT_NEAR(window.at(now).generated, 10, 2);
}

class CountingSink final : public Sink {
 public:
  explicit CountingSink(std::atomic<int>& done) : done_(done) {}
  bool on_admitted(const Admission&) override { return true; }
  void on_progress(int64_t, int64_t) override {}
  Flow on_token(uint64_t, const GeneratedToken&) override { return Flow::kMore; }
  void on_done(const Outcome&) override { ++done_; }

 private:
  std::atomic<int>& done_;
};

Request request_of(int prompt, int max_tokens) {
  Request request;
  request.prompt.assign(size_t(prompt), 5);
  request.limits.max_tokens = max_tokens;
  return request;
}

void wait_for(const std::atomic<int>& value, int wanted) {
  for (int i = 0; i < 4000 && value < wanted; i++) std::this_thread::sleep_for(5ms);
  ASSERT_GE(value, wanted);
}

TEST(EngineStatsTest, AnEndedRequestIsCountedBeforeItsSinkHearsOfIt) {
  FakeScript script;
  script.capabilities.max_rows = 3;
  script.cached_tokens = [](const Request& request) { return int64_t(request.prompt.size()) / 2; };
  Engine engine(std::make_unique<FakeExecutor>(script));
  std::atomic<int> done = 0;
  EngineStats before = engine.stats();
  EXPECT_EQ(before.max_rows, 3);
  for (int i = 1; i <= 5; i++) {
    engine.open(request_of(10, 4), std::make_unique<CountingSink>(done));
    wait_for(done, i);
    const EngineStats stats = engine.stats();
    EXPECT_EQ(stats.count(FinishReason::kLength), uint64_t(i));
    EXPECT_TRUE(stats.rows.empty());
    EXPECT_EQ(stats.prompt_tokens, uint64_t(5 * i));
    EXPECT_EQ(stats.cached_tokens, uint64_t(5 * i));
    EXPECT_EQ(stats.cache_queries, uint64_t(10 * i));
    EXPECT_EQ(stats.completion_tokens, uint64_t(4 * i));
    EXPECT_EQ(stats.longest, 14);
    EXPECT_EQ(stats.queue.count(), uint64_t(i));
    EXPECT_EQ(stats.first_token.count(), uint64_t(i));
    EXPECT_EQ(stats.between_tokens.count(), uint64_t(3 * i));
    EXPECT_EQ(stats.requests.count(), uint64_t(i));
    EXPECT_DOUBLE_EQ(stats.completions.sum(), 4 * i);
    EXPECT_GT(stats.steps, before.steps);
    EXPECT_GE(stats.rows_of_steps, stats.steps);
    before = stats;
  }
}

TEST(EngineStatsTest, ShowsWaitersAndRefusals) {
  std::atomic<bool> go = false;
  FakeScript script;
  script.capabilities.max_rows = 2;
  script.state_bytes = 1000;
  script.on_submit = [&](const Work&) {
    while (!go) std::this_thread::sleep_for(1ms);
  };
  EngineOptions options;
  options.max_queued = 1;
  options.steps.state_bytes = 1000;
  Engine engine(std::make_unique<FakeExecutor>(script), options);
  std::atomic<int> done = 0;
  const auto open = [&] {
    return engine.open(request_of(10, 5), std::make_unique<CountingSink>(done));
  };
  open();
  for (int i = 0; i < 4000 && engine.stats().waiting > 0; i++) std::this_thread::sleep_for(1ms);
  open();  // waits while the step of the first one runs
  EXPECT_THROW(open(), Error);
  EXPECT_EQ(engine.stats().waiting, 1);
  EXPECT_EQ(engine.stats().refused, 1u);
  go = true;
  wait_for(done, 2);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.count(FinishReason::kLength), 2u);
  EXPECT_EQ(stats.state_budget, 1000u);
  EXPECT_EQ(stats.waiting, 0);
}

// Readers on other threads see whole snapshots whose counters only rise.
TEST(EngineStatsTest, CountersOnlyRiseWhileRequestsComeAndGo) {
  FakeScript script;
  script.capabilities.max_rows = 4;
  Engine engine(std::make_unique<FakeExecutor>(script), {.max_queued = 1000});
  std::atomic<int> done = 0;
  std::atomic<bool> ended = false;
  std::thread reader([&] {
    EngineStats last = engine.stats();
    while (!ended) {
      const EngineStats now = engine.stats();
      EXPECT_GE(now.completion_tokens, last.completion_tokens);
      EXPECT_GE(now.steps, last.steps);
      EXPECT_GE(now.requests.count(), last.requests.count());
      EXPECT_LE(now.rows.size(), 4u);
      for (const RowStats& row : now.rows) {
        EXPECT_GE(row.slot, 0);
        EXPECT_LT(row.slot, 4);
        EXPECT_EQ(row.settings->limits.max_tokens, 7);
      }
      last = now;
    }
  });
  for (int i = 0; i < 200; i++) engine.open(request_of(3, 7), std::make_unique<CountingSink>(done));
  wait_for(done, 200);
  ended = true;
  reader.join();
  EXPECT_EQ(engine.stats().completion_tokens, 1400u);
}

}  // namespace
}  // namespace mantou
