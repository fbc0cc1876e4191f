// The engine against a scripted Executor, which checks the calls it gets against executor.h.
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <random>

#include "engine/fake_executor.h"
#include "engine/step_loop.h"

namespace mantou {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Clock = std::chrono::steady_clock;

// What one sink saw. Written on the engine thread, read after `outcome` was delivered.
struct Seen {
  std::vector<TokenId> tokens;
  std::vector<uint64_t> sequence;
  std::vector<int64_t> progress;
  int admitted = 0, done = 0;
  std::atomic<int> token_count{0};
  std::promise<Outcome> promise;
  std::future<Outcome> outcome = promise.get_future();

  Outcome wait() {
    if (outcome.wait_for(20s) != std::future_status::ready) throw std::runtime_error("no outcome");
    return outcome.get();
  }
};

class RecordingSink final : public Sink {
 public:
  explicit RecordingSink(std::shared_ptr<Seen> seen, int stop_after = -1, bool want = true,
                         Flow at_stop = Flow::kStop)
      : seen_(std::move(seen)), stop_after_(stop_after), want_(want), at_stop_(at_stop) {}
  bool on_admitted(const Admission&) override {
    ++seen_->admitted;
    return want_;
  }
  void on_progress(int64_t done, int64_t total) override { seen_->progress.push_back(done); }
  Flow on_token(uint64_t sequence, const GeneratedToken& token) override {
    seen_->sequence.push_back(sequence);
    seen_->tokens.push_back(token.id);
    ++seen_->token_count;
    return int(seen_->tokens.size()) == stop_after_ ? at_stop_ : Flow::kMore;
  }
  void on_done(const Outcome& outcome) override {
    ++seen_->done;
    seen_->promise.set_value(outcome);
  }

 private:
  std::shared_ptr<Seen> seen_;
  int stop_after_;
  bool want_;
  Flow at_stop_;
};

Request request_of(int prompt_tokens, int max_tokens) {
  Request request;
  request.prompt.assign(prompt_tokens, 7);
  request.limits.max_tokens = max_tokens;
  return request;
}

// On an Executor that does a step after the other, and on one that takes the next step ahead.
class EngineTest : public testing::TestWithParam<bool> {
 protected:
  void start(FakeScript script, EngineOptions options = {}) {
    script.ahead = GetParam();
    engine_ = std::make_unique<Engine>(std::make_unique<FakeExecutor>(std::move(script), record_),
                                       options);
  }
  std::shared_ptr<Seen> open(Request request, int stop_after = -1, bool want = true) {
    auto seen = std::make_shared<Seen>();
    last_ =
        engine_->open(std::move(request), std::make_unique<RecordingSink>(seen, stop_after, want));
    return seen;
  }
  // Tokens of each step so far.
  std::vector<int> step_sizes() const {
    std::vector<int> sizes;
    for (const FakeEvent& event : record_->events())
      if (event.kind == FakeEvent::Kind::kStep) sizes.push_back(event.tokens);
    return sizes;
  }
  void TearDown() override {
    engine_.reset();
    EXPECT_THAT(record_->violations(), IsEmpty());
    EXPECT_EQ(record_->live_rows(), 0);
  }

  std::shared_ptr<FakeRecord> record_ = std::make_shared<FakeRecord>();
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<Generation> last_;
};

void wait_until(const std::function<bool()>& condition) {
  const auto deadline = Clock::now() + 20s;
  while (!condition()) {
    ASSERT_LT(Clock::now(), deadline) << "condition never became true";
    std::this_thread::sleep_for(1ms);
  }
}

TEST_P(EngineTest, DeliversCommittedTokensInOrderAndCounts) {
  start({});
  const auto seen = open(request_of(3, 4));
  const Outcome outcome = seen->wait();
  EXPECT_EQ(outcome.reason, FinishReason::kLength);
  EXPECT_THAT(seen->tokens, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(seen->sequence, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(outcome.prompt_tokens, 3);
  EXPECT_EQ(outcome.completion_tokens, 4);
  EXPECT_FALSE(outcome.error);
  EXPECT_EQ(seen->admitted, 1);
}

TEST_P(EngineTest, EndAndStopIdsCountButAreNotPartOfTheAnswer) {
  FakeScript script;
  script.token = [](const Request&, int64_t i) { return GeneratedToken{i < 2 ? 5 : 0, 0, {}}; };
  start(script);
  auto seen = open(request_of(1, 10));
  Outcome outcome = seen->wait();
  EXPECT_EQ(outcome.reason, FinishReason::kStop);
  EXPECT_THAT(seen->tokens, ElementsAre(5, 5));
  EXPECT_EQ(outcome.completion_tokens, 3);

  Request with_stop = request_of(1, 10);
  with_stop.limits.stop_token_ids = {5};
  seen = open(with_stop);
  outcome = seen->wait();
  EXPECT_EQ(outcome.reason, FinishReason::kStop);
  EXPECT_THAT(seen->tokens, IsEmpty());
}

TEST_P(EngineTest, PromptsAreForwardedInChunksAfterTheCachedPart) {
  FakeScript script;
  script.cached_tokens = [](const Request&) { return 100; };
  start(script, {.steps = {.schedule = {.chunk_alone = 512}}});
  const auto seen = open(request_of(1300, 1));
  const Outcome outcome = seen->wait();
  EXPECT_EQ(outcome.cached_tokens, 100);
  EXPECT_THAT(seen->progress, ElementsAre(612, 1124, 1300));
  std::vector<Output> outputs;
  for (const FakeEvent& event : record_->events())
    if (event.kind == FakeEvent::Kind::kStep) outputs.push_back(event.output);
  EXPECT_THAT(step_sizes(), ElementsAre(512, 512, 176));
  EXPECT_THAT(outputs, ElementsAre(Output::kNone, Output::kNone, Output::kSample));
}

// generate_step of mlx-lm 0.32.2: the prompt without its last token in chunks, then that one.
TEST_P(EngineTest, TheLastPromptTokenCanBeAStepOfItsOwn) {
  FakeScript script;
  script.quantized_start = 100;
  script.checks_quantized_start = false;  // as mlx-lm
  start(
      script,
      {.steps = {.schedule = {.chunk_alone = 512, .last_alone = true, .respects_limits = false}}});
  open(request_of(1025, 1))->wait();
  open(request_of(1, 1))->wait();
  EXPECT_THAT(step_sizes(), ElementsAre(512, 512, 1, 1));
}

TEST_P(EngineTest, StepsEndWhereARowMustBeQuantized) {
  FakeScript script;
  script.quantized_start = 700;
  start(script, {.steps = {.schedule = {.chunk_alone = 512}}});
  open(request_of(1300, 1))->wait();
  EXPECT_THAT(step_sizes(), ElementsAre(512, 188, 512, 88));
}

TEST_P(EngineTest, RequestsRunInTheOrderOfArrival) {
  FakeScript script;
  script.layer_time = 200us;
  start(script);
  std::vector<std::shared_ptr<Seen>> all;
  for (int i = 0; i < 5; ++i) all.push_back(open(request_of(2, 3)));
  for (const auto& seen : all) seen->wait();
  std::vector<RequestId> admitted;
  for (const FakeEvent& event : record_->events()) {
    if (event.kind == FakeEvent::Kind::kAdmit) admitted.push_back(event.id);
  }
  EXPECT_THAT(admitted, ElementsAre(1, 2, 3, 4, 5));
}

TEST_P(EngineTest, CancelDuringALongPrefillTakesOneLayer) {
  FakeScript script;
  script.layers = 1000;
  script.layer_time = 5ms;  // a chunk would take five seconds
  start(script);
  const auto seen = open(request_of(512, 5));
  wait_until([&] { return !record_->events().empty(); });
  std::this_thread::sleep_for(20ms);
  const auto before = Clock::now();
  last_->cancel();
  const Outcome outcome = seen->wait();
  EXPECT_LT(Clock::now() - before, 1s);
  EXPECT_EQ(outcome.reason, FinishReason::kCancelled);
  EXPECT_EQ(outcome.completion_tokens, 0);
}

TEST_P(EngineTest, CancelDuringDecodeEndsOnlyThatRequest) {
  FakeScript script;
  script.layer_time = 1ms;
  start(script);
  const auto seen = open(request_of(2, 100000));
  const auto first = last_;
  const auto next = open(request_of(2, 2));
  wait_until([&] { return seen->token_count.load() >= 3; });
  first->cancel();
  const Outcome outcome = seen->wait();
  EXPECT_EQ(outcome.reason, FinishReason::kCancelled);
  EXPECT_EQ(size_t(outcome.completion_tokens), seen->tokens.size());
  EXPECT_EQ(next->wait().reason, FinishReason::kLength);
}

// A cancelled waiter, at each place of the queue, must not touch the request that runs.
TEST_P(EngineTest, CancelInTheQueueLeavesTheOthersAlone) {
  for (int place = 0; place < 3; ++place) {
    FakeScript script;
    script.layer_time = 1ms;
    start(script);
    const auto running = open(request_of(2, 60));
    std::vector<std::shared_ptr<Seen>> waiting;
    std::vector<std::shared_ptr<Generation>> handles;
    for (int i = 0; i < 3; ++i) {
      waiting.push_back(open(request_of(2, 2)));
      handles.push_back(last_);
    }
    handles[place]->cancel();
    EXPECT_EQ(waiting[place]->wait().reason, FinishReason::kCancelled);
    EXPECT_EQ(waiting[place]->admitted, 0);
    EXPECT_EQ(running->outcome.wait_for(0s), std::future_status::timeout);
    EXPECT_EQ(running->wait().completion_tokens, 60);
    for (int i = 0; i < 3; ++i) {
      if (i == place) continue;
      EXPECT_EQ(waiting[i]->wait().reason, FinishReason::kLength);
    }
    engine_.reset();
  }
}

TEST_P(EngineTest, AFullQueueRefusesAndACancelledWaiterMakesRoomAtOnce) {
  FakeScript script;
  script.layers = 10000;
  script.layer_time = 1ms;  // the first step practically never ends
  start(script, {.max_queued = 2, .steps = {}});
  const auto running = open(request_of(2, 1));
  const auto runs = last_;
  wait_until([&] { return !record_->events().empty(); });
  open(request_of(2, 1));
  const auto waiter = last_;
  open(request_of(2, 1));
  const auto refused = [&] {
    try {
      open(request_of(2, 1));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
      EXPECT_THAT(error.message(), HasSubstr("2 requests are waiting"));
      return true;
    }
    return false;
  };
  EXPECT_TRUE(refused());
  waiter->cancel();
  EXPECT_FALSE(refused());
  EXPECT_TRUE(refused());
}

TEST_P(EngineTest, ANewcomerJoinsRowsThatAreWriting) {
  FakeScript script;
  script.capabilities.max_rows = 2;
  script.layer_time = 200us;
  start(script);
  const auto first = open(request_of(2, 2000));
  wait_until([&] { return first->token_count > 20; });
  open(request_of(2, 3))->wait();
  EXPECT_LT(first->token_count, 2000);
  last_.reset();
  engine_.reset();  // ends the first
}

TEST_P(EngineTest, ASinkMayStopItsRow) {
  start({});
  const auto seen = open(request_of(2, 100), 3);
  const Outcome outcome = seen->wait();
  EXPECT_EQ(outcome.reason, FinishReason::kStop);
  EXPECT_THAT(seen->tokens, ElementsAre(1, 2, 3));
  const auto unwanted = open(request_of(2, 100), -1, false);
  EXPECT_EQ(unwanted->wait().reason, FinishReason::kCancelled);
  EXPECT_THAT(unwanted->tokens, IsEmpty());
  const auto left = std::make_shared<Seen>();
  engine_->open(request_of(2, 100), std::make_unique<RecordingSink>(left, 3, true, Flow::kClosed));
  const Outcome closed = left->wait();
  EXPECT_EQ(closed.reason, FinishReason::kCancelled);
  EXPECT_EQ(closed.cancel, CancelReason::kConsumerClosed);
  EXPECT_THAT(left->tokens, ElementsAre(1, 2, 3));
}

TEST_P(EngineTest, ErrorsEndTheirRequestAndTheEngineLives) {
  FakeScript script;
  script.on_admit = [](const Request& request) {
    if (request.id == 1) fail_param(ErrorCode::kResourceExhausted, "kv", "no memory for this row");
  };
  script.row_error = [](const Work& work) -> std::optional<Error> {
    if (work.id == 2) return Error(ErrorCode::kNumerical, "NaN in the logits");
    return std::nullopt;
  };
  script.on_submit = [](const Work& work) {
    if (work.id == 3) throw Error(ErrorCode::kIo, "device lost");
    if (work.id == 4) throw std::runtime_error("surprise");
    if (work.id == 5) throw std::bad_alloc();
  };
  start(script);
  const std::pair<ErrorCode, std::string> expected[] = {
      {ErrorCode::kResourceExhausted, "no memory for this row"},
      {ErrorCode::kNumerical, "NaN in the logits"},
      {ErrorCode::kIo, "device lost"},
      {ErrorCode::kInternal, "unexpected failure: surprise"},
      {ErrorCode::kResourceExhausted, "out of memory"}};
  for (const auto& [code, message] : expected) {
    const auto seen = open(request_of(2, 3));
    const Outcome outcome = seen->wait();
    EXPECT_EQ(outcome.reason, FinishReason::kError);
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->code(), code);
    EXPECT_EQ(outcome.error->message(), message);
  }
  EXPECT_EQ(open(request_of(2, 3))->wait().reason, FinishReason::kLength);
}

TEST_P(EngineTest, KeepsStateUnlessTheRowFailedOrIsToKeepNone) {
  FakeScript script;
  script.row_error = [](const Work& work) -> std::optional<Error> {
    if (work.id == 3) return Error(ErrorCode::kNumerical, "NaN");
    return std::nullopt;
  };
  start(script);
  Request own = request_of(2, 1);
  own.cache.keep = false;
  open(own)->wait();
  open(request_of(2, 1))->wait();
  open(request_of(2, 1))->wait();
  engine_.reset();
  std::vector<Release> how;
  for (const FakeEvent& event : record_->events()) {
    if (event.kind == FakeEvent::Kind::kRelease) how.push_back(event.how);
  }
  EXPECT_THAT(how, ElementsAre(Release::kDrop, Release::kKeep, Release::kDrop));
}

// What a device that works ahead reports late: the answer so far stands, and no state is kept.
TEST_P(EngineTest, AFailureFoundOnCollectingEndsTheRequest) {
  FakeScript script;
  int collected = 0;
  script.on_collect = [&](const StepResults&) {
    if (++collected == 3) fail(ErrorCode::kIo, "device lost");
  };
  start(script);
  // Without a step ahead the third result is the third token; with one it is not waited for when
  // the sink has stopped after the second.
  const auto seen = open(request_of(2, 10), GetParam() ? 2 : -1);
  const Outcome outcome = seen->wait();
  EXPECT_EQ(outcome.reason, GetParam() ? FinishReason::kStop : FinishReason::kError);
  EXPECT_THAT(seen->tokens, ElementsAre(1, 2));
  EXPECT_EQ(open(request_of(2, 3))->wait().reason, FinishReason::kLength);
  engine_.reset();
  for (const FakeEvent& event : record_->events())
    EXPECT_TRUE(event.id != 1 || event.how != Release::kKeep);
}

TEST_P(EngineTest, TheNextStepIsSubmittedBeforeTheTokenIsWaitedFor) {
  FakeScript script;
  std::vector<size_t> steps_before_result;
  script.on_collect = [&](const StepResults&) {
    steps_before_result.push_back(step_sizes().size());
  };
  start(script);
  open(request_of(3, 4))->wait();
  engine_.reset();
  EXPECT_EQ(steps_before_result,
            GetParam() ? (std::vector<size_t>{2, 3, 4, 4}) : (std::vector<size_t>{1, 2, 3, 4}));
  EXPECT_THAT(step_sizes(), ElementsAre(3, 1, 1, 1));
}

TEST_P(EngineTest, ShutdownDrainsWithinTheGraceAndCancelsAfterIt) {
  FakeScript script;
  script.layer_time = 1ms;
  start(script);
  auto seen = open(request_of(2, 20));
  EXPECT_TRUE(engine_->shutdown(20s));
  EXPECT_EQ(seen->wait().reason, FinishReason::kLength);
  try {
    open(request_of(2, 1));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
  }

  script.layers = 10000;
  start(script);
  seen = open(request_of(2, 20));
  const auto queued = open(request_of(2, 20));
  const auto before = Clock::now();
  EXPECT_FALSE(engine_->shutdown(50ms));
  EXPECT_LT(Clock::now() - before, 5s);
  for (const auto& each : {seen, queued}) {
    const Outcome outcome = each->wait();
    EXPECT_EQ(outcome.reason, FinishReason::kCancelled);
    EXPECT_EQ(outcome.cancel, CancelReason::kShutdown);
  }
  EXPECT_TRUE(engine_->shutdown(0ms));
}

TEST_P(EngineTest, TimingsAddUpToTheTimeItTook) {
  FakeScript script;
  script.layer_time = 5ms;
  start(script);
  const auto before = Clock::now();
  const auto seen = open(request_of(2, 4));
  const Outcome outcome = seen->wait();
  const double all = std::chrono::duration<double>(Clock::now() - before).count();
  const Timings& t = outcome.timings;
  EXPECT_GE(t.prefill, 0.005);
  // The fake works in submit: of a step ahead, before the token that it follows is handed out.
  EXPECT_GE(t.decode, GetParam() ? 0.010 : 0.015);
  EXPECT_GE(t.queue, 0);
  EXPECT_LE(t.queue + t.prefill + t.decode, all);
}

// StepLoop alone: an Executor that breaks its contract ends the request, not the loop.
class BrokenExecutor final : public Executor {
 public:
  explicit BrokenExecutor(StepResults results, int64_t cached = 0)
      : results_(std::move(results)), cached_(cached) {
    capabilities_.context = 100;
  }
  const Capabilities& capabilities() const override { return capabilities_; }
  uint64_t row_bytes(int64_t) const override { return 1; }
  bool is_worth_waiting(const Request&) const override { return false; }
  Admission admit(const Request&, const Plan&) override { return {cached_, 10}; }
  int64_t append_limit(RequestId) const override { return 1000; }
  Ticket submit(const StepPlan&) override { return 1; }
  StepResults collect(Ticket) override { return results_; }
  void release(RequestId, Release) override { throw std::runtime_error("cannot release"); }

 private:
  Capabilities capabilities_;
  StepResults results_;
  int64_t cached_;
};

TEST(StepLoop, BrokenResultsAreInternalErrors) {
  StepResults no_rows, wrong_id, no_token, unasked_stop;
  wrong_id.rows.push_back({99, GeneratedToken{}, {}, {}});
  no_token.rows.push_back({1, {}, {}, {}});
  unasked_stop.stopped = true;
  const std::pair<BrokenExecutor, std::string> cases[] = {
      {BrokenExecutor(no_rows), "returned 0 results"},
      {BrokenExecutor(wrong_id), "a result for request 99 in place of 1"},
      {BrokenExecutor(no_token), "no sampled token"},
      {BrokenExecutor(unasked_stop), "nobody asked"},
      {BrokenExecutor({}, 2), "2 of 2 prompt tokens were reported as cached"}};
  for (auto [executor, message] : cases) {
    std::vector<RequestId> finished;
    const auto shared = std::make_shared<Generation::Shared>();
    StepLoop loop(executor, {}, shared, [&](RequestId id) { finished.push_back(id); });
    Request request = request_of(2, 5);
    request.id = 1;
    auto seen = std::make_shared<Seen>();
    loop.add(std::make_shared<Generation>(request, std::make_unique<RecordingSink>(seen), shared,
                                          Clock::now()));
    for (int turn = 0; turn < 10 && loop.has_work(); ++turn) loop.turn();
    ASSERT_FALSE(loop.has_work()) << message;
    const Outcome outcome = seen->wait();
    ASSERT_TRUE(outcome.error) << message;
    EXPECT_EQ(outcome.error->code(), ErrorCode::kInternal);
    EXPECT_THAT(outcome.error->message(), HasSubstr(message));
    EXPECT_THAT(finished, ElementsAre(1));
  }
}

// Random faults, cancels and stops from several threads: every request ends exactly once, with
// contiguous numbers, and every row is released.
TEST_P(EngineTest, StressWithRandomFaults) {
  FakeScript script;
  script.on_admit = [](const Request& request) {
    if (request.id % 11 == 0) fail(ErrorCode::kResourceExhausted, "no memory");
  };
  script.row_error = [](const Work& work) -> std::optional<Error> {
    if (work.id % 7 == 0) return Error(ErrorCode::kNumerical, "NaN");
    return std::nullopt;
  };
  script.on_submit = [](const Work& work) {
    if (work.id % 13 == 0 && work.tokens == 1) throw Error(ErrorCode::kIo, "device lost");
  };
  script.layers = 3;
  script.layer_time = 5us;
  start(script, {.max_queued = 16, .steps = {.schedule = {.chunk_alone = 8}}});

  constexpr int kThreads = 4, kEach = 150;
  std::mutex mutex;
  std::vector<std::shared_ptr<Seen>> all;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < kEach; ++i) {
        auto seen = std::make_shared<Seen>();
        const int stop_after = random() % 5 == 0 ? int(random() % 4 + 1) : -1;
        std::shared_ptr<Generation> generation;
        try {
          generation = engine_->open(request_of(1 + random() % 30, 1 + random() % 12),
                                     std::make_unique<RecordingSink>(seen, stop_after));
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
          std::this_thread::sleep_for(1ms);
          continue;
        }
        if (random() % 4 == 0) generation->cancel();
        std::lock_guard lock(mutex);
        all.push_back(std::move(seen));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(engine_->shutdown(20s));
  std::map<FinishReason, int> reasons;
  for (const auto& seen : all) {
    const Outcome outcome = seen->wait();
    ++reasons[outcome.reason];
    EXPECT_EQ(seen->done, 1);
    EXPECT_EQ(outcome.error.has_value(), outcome.reason == FinishReason::kError);
    for (size_t i = 0; i < seen->sequence.size(); ++i) EXPECT_EQ(seen->sequence[i], i);
  }
  EXPECT_EQ(reasons.size(), 4u) << "each way to end should occur";
}

INSTANTIATE_TEST_SUITE_P(Executors, EngineTest, testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "Ahead" : "StepByStep");
});

}  // namespace
}  // namespace mantou
