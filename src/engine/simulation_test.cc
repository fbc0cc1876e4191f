// Whole lives of many requests on a FakeExecutor with a clock of its own: arrivals, lengths,
// cancels, faults and slow readers at random, turn by turn. Whatever happens, no token is lost,
// doubled or given to another, every request ends once, and nothing stays behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "engine/fake_executor.h"
#include "engine/step_loop.h"

namespace mantou {
namespace {

using namespace std::chrono_literals;
using testing::IsEmpty;

// Token `index` of a request: crossed answers differ at once.
TokenId token_of(RequestId id, int64_t index) { return TokenId(1 + (id * 37 + index * 11) % 900); }

TokenId prompt_token(TokenId id, int64_t place) { return TokenId(1 + (id * 13 + place * 7) % 900); }

struct Client {
  // What it does.
  int64_t stop_after = -1;   // the sink stops after so many tokens
  int64_t throw_after = -1;  // … throws
  int64_t pause_after = -1;  // … pauses, for `pause` turns; -1: for good
  int pause = 0;
  int cancel_at = -1;   // turn
  int64_t end_at = -1;  // the model ends the answer with its end id
  int64_t max_tokens = 0;
  int64_t prompt = 0;
  bool scored = false;

  // What it saw.
  std::shared_ptr<Generation> generation;
  std::vector<TokenId> tokens, scores;
  int64_t progress = 0;
  int done = 0;
  bool admitted = false, after_done = false;
  int resume_at = -1;
  Outcome outcome;
};

class ClientSink final : public Sink {
 public:
  ClientSink(Client& client, const int& turn) : client_(client), turn_(turn) {}
  bool on_admitted(const Admission&) override {
    client_.after_done |= client_.done > 0;
    client_.admitted = true;
    return true;
  }
  void on_progress(int64_t done, int64_t total) override {
    EXPECT_GT(done, client_.progress);
    EXPECT_LE(done, total);
    client_.progress = done;
  }
  void on_scores(std::span<const GeneratedToken> scores) override {
    client_.after_done |= client_.done > 0;
    for (const GeneratedToken& score : scores) client_.scores.push_back(score.id);
  }
  Flow on_token(uint64_t sequence, const GeneratedToken& token) override {
    client_.after_done |= client_.done > 0;
    EXPECT_EQ(sequence, client_.tokens.size());
    client_.tokens.push_back(token.id);
    const auto count = int64_t(client_.tokens.size());
    if (count == client_.throw_after) throw std::runtime_error("the sink failed");
    if (count == client_.stop_after) return Flow::kStop;
    if (count != client_.pause_after) return Flow::kMore;
    client_.resume_at = client_.pause < 0 ? -1 : turn_ + client_.pause;
    return Flow::kPause;
  }
  void on_done(const Outcome& outcome) override {
    ++client_.done;
    client_.outcome = outcome;
  }

 private:
  Client& client_;
  const int& turn_;
};

class Simulation {
 public:
  explicit Simulation(uint32_t seed) : random_(seed) {
    const bool uniform = below(3) == 0;
    script_.ahead = below(2) == 0;
    script_.capabilities.max_rows = 1 + below(8);
    script_.capabilities.context = 600;
    script_.capabilities.uniform_steps = uniform;
    script_.quantized_start = below(3) == 0 ? 100 : 0;
    script_.token = [this](const Request& request, int64_t index) {
      const Client& client = *clients_.at(request.id - 1);
      return GeneratedToken{index == client.end_at ? 0 : token_of(request.id, index), 0, {}};
    };
    script_.cached_tokens = [](const Request& request) {
      return request.id % 4 == 0 ? int64_t(request.prompt.size()) / 2 : 0;
    };
    if (below(2)) plan_faults();
    const auto on_submit = script_.on_submit;
    script_.on_submit = [this, on_submit](const Work& work) {
      now_ += std::chrono::microseconds(200 + 300 * work.tokens);
      if (on_submit) on_submit(work);
    };
    options_.schedule = {.chunk_alone = 16 + below(200),
                         .chunk_beside = 8 + below(60),
                         .chunk_least = 8,
                         .uniform = uniform,
                         .last_alone = below(2) == 0};
    options_.state_bytes = 300 + uint64_t(below(3000));
    script_.state_bytes = options_.state_bytes;
    options_.patience = 2s;
  }

  void run() {
    FakeExecutor executor(script_, record_);
    StepLoop loop(executor, options_, shared_, [](RequestId) {}, [this] { return now_; });
    const int requests = 1 + below(20);
    std::vector<int> arrivals;
    for (int i = 0; i < requests; i++) arrivals.push_back(below(60));
    std::sort(arrivals.begin(), arrivals.end());
    size_t next = 0;
    for (turn_ = 0; turn_ < 20'000 && (next < arrivals.size() || loop.has_work()); turn_++) {
      for (; next < arrivals.size() && arrivals[next] <= turn_; next++)
        arrive(loop, random_client());
      for (const auto& client : clients_) {
        if (client->cancel_at == turn_) client->generation->cancel();
        if (client->resume_at == turn_) client->generation->resume();
      }
      if (loop.has_work() && !loop.turn()) now_ += 50ms;
    }
    ASSERT_FALSE(loop.has_work()) << "after " << turn_ << " turns";
    check();
    EXPECT_EQ(loop.ledger().reserved(), 0u);
    run_small_request(loop);
    EXPECT_THAT(record_->violations(), IsEmpty());
    EXPECT_EQ(record_->live_rows(), 0);
    EXPECT_EQ(shared_->waiting.load(), 0);
  }

 private:
  int below(int n) { return int(random_() % uint32_t(n)); }

  void plan_faults() {
    const uint32_t admit = 5 + random_() % 10, row = 5 + random_() % 10,
                   step = 40 + random_() % 400;
    script_.on_admit = [admit](const Request& request) {
      if (request.id % admit == 3) fail(ErrorCode::kResourceExhausted, "no memory");
    };
    script_.row_error = [row](const Work& work) -> std::optional<Error> {
      if (work.id % row == 4) return Error(ErrorCode::kNumerical, "NaN");
      return std::nullopt;
    };
    const bool late = below(2) == 0;
    auto fault = [this, step, count = 0u]() mutable {
      if (!faults_ || ++count % step != 0) return;
      faulty_ = true;
      throw Error(ErrorCode::kIo, "device lost");
    };
    if (late)
      script_.on_collect = [fault](const StepResults&) mutable { fault(); };
    else
      script_.on_submit = [fault](const Work&) mutable { fault(); };
  }

  Client random_client() {
    Client client;
    client.prompt = 1 + below(below(4) == 0 ? 700 : 90);
    client.max_tokens = below(4) == 0 ? -1 : below(30);
    if (below(3) == 0) client.end_at = below(25);
    if (below(6) == 0) client.stop_after = 1 + below(10);
    if (below(12) == 0) client.throw_after = 1 + below(10);
    if (below(5) == 0) client.pause_after = 1 + below(10);
    client.pause = below(4) == 0 ? -1 : 1 + below(40);
    if (below(5) == 0) client.cancel_at = turn_ + below(80);
    client.scored = below(5) == 0;
    return client;
  }

  Client& arrive(StepLoop& loop, Client client) {
    clients_.push_back(std::make_unique<Client>(std::move(client)));
    Client& mine = *clients_.back();
    Request request;
    request.id = clients_.size();
    for (int64_t i = 0; i < mine.prompt; i++)
      request.prompt.push_back(prompt_token(TokenId(request.id), i));
    if (mine.scored) request.scores = PromptScores{};
    request.limits.max_tokens = int(mine.max_tokens);
    mine.generation = std::make_shared<Generation>(
        std::move(request), std::make_unique<ClientSink>(mine, turn_), shared_, now_);
    loop.add(mine.generation);
    return mine;
  }

  // The answer a request gets when nothing happens to it.
  std::vector<TokenId> whole_answer(const Client& client, RequestId id) const {
    int64_t limit = script_.capabilities.context - client.prompt;
    limit = std::min(limit, int64_t(options_.state_bytes) - client.prompt);
    if (client.max_tokens >= 0) limit = std::min(limit, client.max_tokens);
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < limit && i != client.end_at; i++) tokens.push_back(token_of(id, i));
    return tokens;
  }

  void check() {
    for (size_t i = 0; i < clients_.size(); i++) {
      const Client& client = *clients_[i];
      SCOPED_TRACE("request " + std::to_string(i + 1));
      EXPECT_EQ(client.done, 1);
      EXPECT_FALSE(client.after_done);
      check_scores(client, TokenId(i + 1));
      const std::vector<TokenId> whole = whole_answer(client, i + 1);
      ASSERT_LE(client.tokens.size(), whole.size());
      EXPECT_TRUE(std::equal(client.tokens.begin(), client.tokens.end(), whole.begin()));
      EXPECT_EQ(client.outcome.error.has_value(), client.outcome.reason == FinishReason::kError);
      if (client.outcome.reason == FinishReason::kLength) {
        EXPECT_EQ(client.tokens, whole);
        EXPECT_TRUE(client.end_at < 0 || client.end_at >= int64_t(whole.size()));
      }
      if (client.outcome.reason == FinishReason::kStop) {
        EXPECT_TRUE(client.tokens == whole || int64_t(client.tokens.size()) == client.stop_after);
      }
      if (client.outcome.reason == FinishReason::kCancelled) {
        const bool idle = client.outcome.cancel == CancelReason::kConsumerIdle;
        EXPECT_TRUE(idle ? client.pause_after > 0 : client.cancel_at >= 0);
      }
      if (client.outcome.reason == FinishReason::kError && !faulty_ && client.throw_after < 0 &&
          !script_.row_error) {
        EXPECT_GE(client.prompt + 1, std::min<int64_t>(600, int64_t(options_.state_bytes)));
      }
    }
  }

  // Of every prompt token but the first, once and in order, as far as the prompt was read.
  static void check_scores(const Client& client, TokenId id) {
    std::vector<TokenId> expected;
    for (int64_t i = 1; client.scored && i <= std::min(client.progress, client.prompt - 1); i++)
      expected.push_back(prompt_token(id, i));
    EXPECT_EQ(client.scores, expected);
  }

  void run_small_request(StepLoop& loop) {
    faults_ = false;
    while ((clients_.size() + 1) % 15 < 6) arrive_ended();  // an id without faults of its own
    script_.row_error = {};
    Client small;
    small.prompt = 5;
    small.max_tokens = 3;
    const Client& client = arrive(loop, small);
    for (int i = 0; i < 12 && loop.has_work(); i++, turn_++) loop.turn();
    EXPECT_EQ(client.done, 1);
  }

  void arrive_ended() { clients_.push_back(std::make_unique<Client>()); }

  std::mt19937 random_;
  FakeScript script_;
  StepLoopOptions options_;
  std::shared_ptr<FakeRecord> record_ = std::make_shared<FakeRecord>();
  std::shared_ptr<Generation::Shared> shared_ = std::make_shared<Generation::Shared>();
  std::vector<std::unique_ptr<Client>> clients_;
  Generation::Clock::time_point now_{};
  int turn_ = 0;
  bool faults_ = true, faulty_ = false;
};

TEST(SimulationProperties, NothingIsLostDoubledOrCrossed) {
  const int schedules = std::getenv("MANTOU_TEST_FULL") ? 10'000 : 1000;
  for (int i = 0; i < schedules && !testing::Test::HasFailure(); i++) {
    SCOPED_TRACE("schedule " + std::to_string(i));
    Simulation(uint32_t(i)).run();
  }
}

}  // namespace
}  // namespace mantou
