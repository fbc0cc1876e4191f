// Plans by hand for small sets of rows.
#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

namespace mantou {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

int64_t no_limit(RequestId) { return std::numeric_limits<int64_t>::max(); }

std::vector<std::pair<RequestId, int>> sizes(const StepPlan& plan) {
  std::vector<std::pair<RequestId, int>> out;
  for (const Work& work : plan.work) out.emplace_back(work.id, work.tokens);
  return out;
}

// Runs steps of `seconds` until every prompt is read; how many steps each row's prompt took.
std::map<RequestId, int> read_all(Scheduler& scheduler, int64_t steps, double seconds) {
  std::map<RequestId, int> took;
  for (int64_t i = 1; i <= steps; i++) {
    const StepPlan plan = scheduler.next(no_limit);
    scheduler.apply(plan, seconds);
    for (const Work& work : plan.work) {
      if (work.output != Output::kSample) continue;
      took[work.id] = int(i);
      scheduler.remove(work.id);
    }
  }
  return took;
}

TEST(Scheduler, AloneAPromptIsReadInLargeChunks) {
  Scheduler scheduler({.chunk_alone = 1000});
  scheduler.add(1, 2500, 100);
  for (const int size : {1000, 1000, 400}) {
    const StepPlan plan = scheduler.next(no_limit);
    EXPECT_THAT(sizes(plan), ElementsAre(Pair(1, size)));
    EXPECT_EQ(plan.work[0].output, size == 400 ? Output::kSample : Output::kNone);
    scheduler.apply(plan, 1);
  }
  EXPECT_THAT(sizes(scheduler.next(no_limit)), ElementsAre(Pair(1, 1)));
  scheduler.remove(1);
  EXPECT_THAT(sizes(scheduler.next(no_limit)), IsEmpty());
  EXPECT_FALSE(scheduler.has_work());
}

TEST(Scheduler, RowsThatWriteAreInEveryStepAndBoundWhatIsRead) {
  Scheduler scheduler({.chunk_beside = 300, .chunk_least = 16, .step_seconds = 0.1});
  scheduler.add(1, 10, 0);
  scheduler.apply(scheduler.next(no_limit), 0.01);
  scheduler.apply(scheduler.next(no_limit), 0.02);  // a token takes 20 ms
  scheduler.add(2, 4000, 0);
  for (int i = 0; i < 10; i++) {
    const StepPlan plan = scheduler.next(no_limit);
    ASSERT_EQ(plan.work.size(), 2u);
    EXPECT_EQ(plan.work[0].id, 1u);
    EXPECT_EQ(plan.work[0].tokens, 1);
    EXPECT_LE(plan.work[1].tokens, 300);
    EXPECT_GE(plan.work[1].tokens, 16);
    scheduler.apply(plan, 0.02 + 0.001 * plan.work[1].tokens);
  }
  // A prompt token takes 1 ms: 100 of them are as long as a step may become.
  EXPECT_NEAR(scheduler.next(no_limit).work[1].tokens, 100, 1);
}

TEST(Scheduler, NeitherTheOldestNorTheShortestPromptStarves) {
  Scheduler scheduler({.chunk_alone = 100});
  scheduler.add(1, 1000, 0);
  scheduler.add(2, 5000, 0);
  scheduler.add(3, 120, 0);
  EXPECT_THAT(sizes(scheduler.next(no_limit)), ElementsAre(Pair(1, 50), Pair(3, 50)));
  const auto took = read_all(scheduler, 30, 1);
  EXPECT_EQ(took.at(3), 3);
  EXPECT_LE(took.at(1), 20);

  // A long prompt among short ones that keep coming moves on in each step.
  Scheduler busy({.chunk_alone = 100});
  busy.add(1, 3000, 0);
  for (RequestId id = 2; id < 100; id++) {
    busy.add(id, 40, 0);
    const StepPlan plan = busy.next(no_limit);
    ASSERT_EQ(plan.work[0].id, 1u);
    ASSERT_GE(plan.work[0].tokens, 50);
    busy.apply(plan, 1);
    for (const Work& work : plan.work)
      if (work.output == Output::kSample) busy.remove(work.id);
    if (plan.work[0].output == Output::kSample) return;
  }
  FAIL() << "the long prompt was never read";
}

TEST(Scheduler, StepsEndAtTheLimitsOfRows) {
  Scheduler scheduler({.chunk_alone = 100});
  scheduler.add(1, 500, 0);
  scheduler.add(2, 500, 0);
  const auto limit = [](RequestId id) { return int64_t{id == 1 ? 7 : 1000}; };
  EXPECT_THAT(sizes(scheduler.next(limit)), ElementsAre(Pair(1, 7), Pair(2, 93)));
  Scheduler careless({.chunk_alone = 100, .respects_limits = false});
  careless.add(1, 500, 0);
  EXPECT_THAT(sizes(careless.next(limit)), ElementsAre(Pair(1, 100)));
}

TEST(Scheduler, TheLastTokenCanBeAStepOfItsOwn) {
  Scheduler scheduler({.chunk_alone = 100, .last_alone = true});
  scheduler.add(1, 101, 0);
  for (const int size : {100, 1, 1}) {
    const StepPlan plan = scheduler.next(no_limit);
    EXPECT_THAT(sizes(plan), ElementsAre(Pair(1, size)));
    scheduler.apply(plan, 1);
  }
}

TEST(Scheduler, UniformStepsForwardEquallyManyTokensAndTakeTurns) {
  Scheduler scheduler(
      {.chunk_alone = 100, .chunk_beside = 64, .uniform = true, .last_alone = true});
  scheduler.add(1, 31, 0);
  scheduler.add(2, 81, 0);
  EXPECT_THAT(sizes(scheduler.next(no_limit)), ElementsAre(Pair(1, 30), Pair(2, 30)));
  scheduler.apply(scheduler.next(no_limit), 1);
  EXPECT_THAT(sizes(scheduler.next(no_limit)), ElementsAre(Pair(1, 1)));  // its last
  scheduler.apply(scheduler.next(no_limit), 1);
  std::vector<std::vector<std::pair<RequestId, int>>> seen;
  for (int i = 0; i < 12; i++) {
    const StepPlan plan = scheduler.next(no_limit);
    seen.push_back(sizes(plan));
    for (const Work& work : plan.work) EXPECT_EQ(work.tokens, plan.work[0].tokens);
    scheduler.apply(plan, 1);
  }
  EXPECT_THAT(seen[0], ElementsAre(Pair(1, 1)));
  EXPECT_THAT(seen[1], ElementsAre(Pair(2, 16)));
  EXPECT_THAT(seen[2], ElementsAre(Pair(1, 1)));
  EXPECT_THAT(seen.back(), ElementsAre(Pair(1, 1), Pair(2, 1)));
}

TEST(Scheduler, HeldRowsAreInNoPlan) {
  Scheduler scheduler({.chunk_alone = 100});
  scheduler.add(1, 1, 0);
  scheduler.add(2, 1, 0);
  scheduler.hold(1, true);
  EXPECT_THAT(sizes(scheduler.next(no_limit)), ElementsAre(Pair(2, 1)));
  scheduler.hold(2, true);
  EXPECT_FALSE(scheduler.has_work());
  EXPECT_THAT(sizes(scheduler.next(no_limit)), IsEmpty());
  scheduler.hold(1, false);
  EXPECT_THAT(sizes(scheduler.next(no_limit)), ElementsAre(Pair(1, 1)));
}

}  // namespace
}  // namespace mantou
