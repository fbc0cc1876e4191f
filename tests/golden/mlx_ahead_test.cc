// The mlx backend as where the device is not the caller's thread: a step is built on the token of
// the one before while that is computed. The answers are those of one step after the other.
#ifdef MANTOU_MLX
#include <gtest/gtest.h>

#include "backends/mlx/mlx_backend.h"
#include "hub/model_artifact.h"
#include "models/registry.h"
#include "runtime/kv_scheme.h"
#include "runtime/model_executor.h"
#include "tests/golden/models.h"

namespace mantou::golden {
namespace {

using Tokens = std::vector<TokenId>;

class MlxAhead : public testing::Test {
 protected:
  std::unique_ptr<Executor> executor(bool ahead, const runtime::KvScheme& scheme = {}) {
    const auto artifact =
        hub::ModelArtifact::open(models_directory() / "SmolLM2-135M-Instruct.Q4_1.gguf");
    auto backend = on_mlx::make_mlx_backend({2, ahead});
    auto model = models::load_model(*artifact, *backend);
    runtime::ExecutorOptions options;
    options.context = 512;
    options.states = runtime::with_scheme(model->state_specs(KvType::kF32), scheme, std::nullopt);
    options.end_ids = {2};
    return runtime::make_model_executor(std::move(backend), std::move(model), options);
  }

  static Request request(RequestId id, const Tokens& prompt, int max_tokens) {
    Request request;
    request.id = id;
    request.prompt = prompt;
    request.sampling.temperature = 0;
    request.limits.max_tokens = max_tokens;
    request.limits.ignore_eos = true;
    return request;
  }

  // Greedy answers of rows that step together; `ahead_steps` counts what was submitted ahead.
  static std::vector<Tokens> answers(Executor& executor, const std::vector<Request>& requests,
                                     int* ahead_steps = nullptr) {
    StepPlan prompts, next;
    for (const Request& r : requests) {
      const Admission admission = executor.admit(r, plan_of(r, executor));
      const int left = int(int64_t(r.prompt.size()) - admission.cached_tokens);
      prompts.work.push_back({r.id, left, Output::kSample});
      next.work.push_back({r.id, 1, Output::kSample});
    }
    std::vector<Tokens> out(requests.size());
    std::optional<Ticket> ticket = executor.submit(prompts);
    for (bool more = true; more;) {
      const std::optional<Ticket> ahead = executor.submit_ahead(next);
      if (ahead && ahead_steps) ++*ahead_steps;
      const StepResults results = executor.collect(*ticket);
      for (size_t i = 0; i < out.size(); i++) out[i].push_back(results.rows[i].token->id);
      more = !results.rows[0].finished;
      ticket = ahead || !more ? ahead : executor.submit(next);
    }
    for (const Request& r : requests) executor.release(r.id, Release::kKeep);
    return out;
  }
};

const Tokens kPrompt{1, 4093, 198, 57, 506, 260, 1211, 282, 260, 905, 28, 284};
const Tokens kOther{1, 3725, 314, 260, 3575, 282, 4649, 47, 198, 504, 3575, 282};

TEST_F(MlxAhead, RowsGetTheirTokensOfOneStepAfterTheOther) {
  MANTOU_NEEDS_MODELS();
  runtime::KvScheme late{runtime::KvScheme::Kind::kUniform, 8, 64, 20};
  for (const runtime::KvScheme& scheme : {runtime::KvScheme{}, late}) {
    const std::vector<Request> requests{request(1, kPrompt, 16), request(2, kOther, 16)};
    int submitted = 0;
    const auto ahead = answers(*executor(true, scheme), requests, &submitted);
    EXPECT_EQ(submitted, 15);
    submitted = 0;
    EXPECT_EQ(ahead, answers(*executor(false, scheme), requests, &submitted));
    EXPECT_EQ(submitted, 0);
    EXPECT_EQ(ahead[0].size(), 16u);
    EXPECT_NE(ahead[0], ahead[1]);
  }
}

TEST_F(MlxAhead, ATokenTooManyIsPartOfWhatIsKept) {
  MANTOU_NEEDS_MODELS();
  const auto e = executor(true);
  const Tokens fresh = answers(*e, {request(1, kPrompt, 12)})[0];
  // Ended by its reader after 5 tokens, when the step that stores the fifth was on its way.
  Request first = request(2, kPrompt, 12);
  e->admit(first, plan_of(first, *e));
  std::optional<Ticket> ticket = e->submit({{{2, int(kPrompt.size()), Output::kSample}}, nullptr});
  Tokens prompt = kPrompt;
  for (int i = 0; i < 5; i++) {
    const auto ahead = e->submit_ahead({{{2, 1, Output::kSample}}, nullptr});
    prompt.push_back(e->collect(*ticket).rows[0].token->id);
    ticket = ahead;
  }
  e->collect(*ticket);
  e->release(2, Release::kKeep);

  Request second = request(3, prompt, 7);
  second.prompt.push_back(fresh[5]);
  EXPECT_EQ(Tokens(prompt.begin() + ptrdiff_t(kPrompt.size()), prompt.end()),
            Tokens(fresh.begin(), fresh.begin() + 5));
  const Admission admission = e->admit(second, plan_of(second, *e));
  EXPECT_EQ(admission.cached_tokens, int64_t(prompt.size()));
  EXPECT_EQ(e->collect(e->submit({{{3, 1, Output::kSample}}, nullptr})).rows[0].token->id,
            fresh[6]);
}

TEST_F(MlxAhead, WhatTheHostChoosesIsNotSubmittedAhead) {
  MANTOU_NEEDS_MODELS();
  const auto e = executor(true);
  Request hot = request(1, kPrompt, 12);
  hot.sampling.temperature = 1;
  e->admit(hot, plan_of(hot, *e));
  const StepPlan next{{{1, 1, Output::kSample}}, nullptr};
  const Ticket ticket = e->submit({{{1, int(kPrompt.size()), Output::kSample}}, nullptr});
  EXPECT_FALSE(e->submit_ahead(next));
  e->collect(ticket);
  Request last = request(2, kPrompt, 1);  // ends for its length
  e->admit(last, plan_of(last, *e));
  const Ticket only = e->submit({{{2, int(kPrompt.size()), Output::kSample}}, nullptr});
  EXPECT_FALSE(e->submit_ahead({{{2, 1, Output::kSample}}, nullptr}));
  EXPECT_EQ(e->collect(only).rows[0].finished, FinishReason::kLength);
}

}  // namespace
}  // namespace mantou::golden
#endif
