// The Executor's promises on a real model: a stopped step changes nothing, kept state gives the
// tokens a fresh start gives, rows do not see each other, and what cannot be admitted is refused
// with its reason.
#include "engine/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/load.h"
#include "tests/golden/models.h"

namespace mantou::golden {
namespace {

using testing::HasSubstr;

std::unique_ptr<Executor> executor(int64_t context = 512) {
  cli::ModelOptions options;
  options.model = (models_directory() / "SmolLM2-135M-Instruct.Q4_1.gguf").string();
  options.ctx_size = context;
  return std::move(cli::load_model(options).executor);
}

std::vector<TokenId> some_ids(int count, int seed) {
  std::vector<TokenId> ids;
  for (int i = 0; i < count; i++) ids.push_back(TokenId((i * 7919 + seed * 104729) % 49000));
  return ids;
}

Request make_request(RequestId id, std::vector<TokenId> prompt, double temperature = 0) {
  Request request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.sampling.temperature = temperature;
  request.sampling.seed = id;
  request.limits.max_tokens = 12;
  request.limits.ignore_eos = true;
  return request;
}

RowResult run(Executor& executor, Work work, const StopFlag* stop = nullptr) {
  StepPlan plan;
  plan.work.push_back(work);
  plan.stop = stop;
  StepResults results = executor.collect(executor.submit(plan));
  if (results.stopped) results.rows.at(0).finished = FinishReason::kCancelled;
  return results.rows.at(0);
}

std::vector<TokenId> generate(Executor& executor, const Request& request, int64_t* cached = nullptr,
                              Release how = Release::kDrop) {
  const Admission admission = executor.admit(request, plan_of(request, executor));
  if (cached) *cached = admission.cached_tokens;
  std::vector<TokenId> tokens;
  int next = int(request.prompt.size()) - int(admission.cached_tokens);
  for (bool more = true; more; next = 1) {
    const RowResult row = run(executor, {request.id, next, Output::kSample});
    tokens.push_back(row.token->id);
    more = !row.finished;
  }
  executor.release(request.id, how);
  return tokens;
}

TEST(ModelExecutor, AStoppedStepChangesNothing) {
  MANTOU_NEEDS_MODELS();
  const auto e = executor();
  const auto want = generate(*e, make_request(1, some_ids(70, 1)));
  const Request request = make_request(2, some_ids(70, 1));
  e->admit(request, plan_of(request, *e));
  StopFlag stop;
  stop.set();
  EXPECT_EQ(run(*e, {2, 40, Output::kNone}, &stop).finished, FinishReason::kCancelled);
  run(*e, {2, 40, Output::kNone});
  EXPECT_EQ(run(*e, {2, 30, Output::kSample}, &stop).finished, FinishReason::kCancelled);
  std::vector<TokenId> got{run(*e, {2, 30, Output::kSample}).token->id};
  EXPECT_EQ(run(*e, {2, 1, Output::kSample}, &stop).finished, FinishReason::kCancelled);
  while (got.size() < want.size()) got.push_back(run(*e, {2, 1, Output::kSample}).token->id);
  EXPECT_EQ(got, want);
}

TEST(ModelExecutor, KeptStateGivesTheTokensOfAFreshStart) {
  MANTOU_NEEDS_MODELS();
  const auto e = executor();
  Request first = make_request(1, some_ids(100, 1));
  const auto answer = generate(*e, first, nullptr, Release::kKeep);

  // The next turn continues the whole first one; the last answered token was never forwarded.
  Request second = make_request(2, first.prompt);
  second.prompt.insert(second.prompt.end(), answer.begin(), answer.end());
  second.prompt.insert(second.prompt.end(), {5, 6, 7});
  second.cache.reuse = false;
  const auto fresh = generate(*e, second);
  second.cache.reuse = true;
  second.id = 3;
  int64_t cached = 0;
  EXPECT_EQ(generate(*e, second, &cached, Release::kKeep), fresh);
  EXPECT_EQ(cached, int64_t(first.prompt.size() + answer.size()) - 1);

  // A turn that leaves the old path after 50 tokens keeps just those.
  Request other = make_request(4, some_ids(100, 1));
  for (size_t i = 50; i < 100; i++) other.prompt[i] = 17;
  other.cache.reuse = false;
  const auto other_fresh = generate(*e, other);
  other.cache.reuse = true;
  other.id = 5;
  EXPECT_EQ(generate(*e, other, &cached, Release::kKeep), other_fresh);
  EXPECT_EQ(cached, 50);

  // The very same prompt again: one token must be forwarded.
  other.id = 6;
  EXPECT_EQ(generate(*e, other, &cached), other_fresh);
  EXPECT_EQ(cached, 99);
}

TEST(ModelExecutor, RowsOfOneStepDoNotSeeEachOther) {
  MANTOU_NEEDS_MODELS();
  const auto e = executor();
  std::vector<Request> requests;
  for (int i = 0; i < 5; i++)
    requests.push_back(make_request(RequestId(i + 1), some_ids(5 + 30 * i, i), i % 2 ? 0.9 : 0));
  std::vector<std::vector<TokenId>> alone, together(5);
  for (const Request& r : requests) alone.push_back(generate(*e, r));
  for (const Request& r : requests) e->admit(r, plan_of(r, *e));
  for (int step = 0; step < 12; step++) {
    StepPlan plan;
    for (const Request& r : requests)
      plan.work.push_back({r.id, step == 0 ? int(r.prompt.size()) : 1, Output::kSample});
    const StepResults results = e->collect(e->submit(plan));
    for (size_t i = 0; i < 5; i++) together[i].push_back(results.rows[i].token->id);
  }
  EXPECT_EQ(together, alone);
}

TEST(ModelExecutor, RefusesWithTheReason) {
  MANTOU_NEEDS_MODELS();
  const auto e = executor(64);
  const auto refusal = [&](Request request) -> std::string {
    try {
      e->admit(request, plan_of(request, *e));
    } catch (const Error& error) {
      return error.message();
    }
    return "admitted";
  };
  EXPECT_THAT(refusal(make_request(1, {})), HasSubstr("empty"));
  EXPECT_THAT(refusal(make_request(1, {1, 49152})), HasSubstr("49152"));
  EXPECT_THAT(refusal(make_request(1, {-1})), HasSubstr("-1"));
  Request hot = make_request(1, {1});
  hot.sampling.temperature = -1;
  EXPECT_THAT(refusal(hot), HasSubstr("temperature"));
  // Nothing of all that left a row behind; the limit is clamped to the context.
  Request fits = make_request(1, some_ids(60, 1));
  EXPECT_EQ(e->admit(fits, plan_of(fits, *e)).max_tokens, 4);
  EXPECT_THAT(refusal(fits), HasSubstr("twice"));
}

}  // namespace
}  // namespace mantou::golden
