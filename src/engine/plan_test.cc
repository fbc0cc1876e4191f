#include "engine/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "engine/fake_executor.h"

namespace mantou {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

Request request_of(int prompt, int max_tokens) {
  Request request;
  request.prompt.assign(size_t(prompt), 1);
  request.limits.max_tokens = max_tokens;
  return request;
}

TEST(Plan, AnswersAreAsLongAsTheyMayBe) {
  FakeScript script;
  script.capabilities.context = 100;
  const FakeExecutor executor(script);  // a byte a token
  struct Case {
    int prompt, wanted;
    uint64_t budget;
    int64_t granted;
  };
  for (const Case& c :
       {Case{10, 5, kUnlimited, 5}, Case{10, -1, kUnlimited, 90}, Case{10, 500, kUnlimited, 90},
        Case{10, -1, 40, 30}, Case{10, 5, 40, 5}, Case{99, 5, kUnlimited, 1},
        Case{10, 0, kUnlimited, 0}, Case{100, 0, kUnlimited, 0}, Case{10, 0, 10, 0}}) {
    const Plan plan = resolve_plan(request_of(c.prompt, c.wanted), executor, c.budget);
    EXPECT_EQ(plan.max_tokens, c.granted) << c.prompt << " " << c.wanted << " " << c.budget;
    EXPECT_EQ(plan.writes(), c.granted > 0);
  }
  for (const Case& c : {Case{100, 5, kUnlimited, 0}, Case{100, -1, kUnlimited, 0},
                        Case{101, 0, kUnlimited, 0}, Case{10, 5, 10, 0}, Case{10, 0, 9, 0}}) {
    try {
      resolve_plan(request_of(c.prompt, c.wanted), executor, c.budget);
      ADD_FAILURE() << c.prompt << " " << c.wanted << " " << c.budget;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
      EXPECT_EQ(error.param(), "prompt");
    }
  }
}

TEST(Plan, HintsAreTakenOrPassedOverWithTheReason) {
  const FakeExecutor executor({});
  Request request = request_of(10, 5);
  Plan plan = resolve_plan(request, executor, kUnlimited);
  EXPECT_TRUE(plan.reuse && plan.keep);
  EXPECT_THAT(plan.bypassed, IsEmpty());

  request.scores = PromptScores{};
  plan = resolve_plan(request, executor, kUnlimited);
  EXPECT_FALSE(plan.reuse);
  EXPECT_TRUE(plan.keep);
  EXPECT_THAT(plan.bypassed, ElementsAre(Plan::Bypass{
                                 "prefix_cache", "every token of a scored prompt has to be read"}));

  request.cache = {false, false};
  plan = resolve_plan(request, executor, kUnlimited);
  EXPECT_FALSE(plan.reuse || plan.keep);
  EXPECT_THAT(plan.bypassed, IsEmpty());
}

}  // namespace
}  // namespace mantou
