#include "server/grammar_compiler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>

#include "server/test_client.h"

namespace mantou::server {
namespace {

using Grammar = std::shared_ptr<const text::Grammar>;
using text::GrammarKind;

text::GrammarSource regex(std::string text) { return {GrammarKind::kRegex, std::move(text), {}}; }

GrammarCompiler::Options options() { return {.max_waiting = 2}; }

// What came of a job, once it did.
class Answer {
 public:
  GrammarCompiler::Job job(text::GrammarSource source) {
    return {std::move(source), [] { return true; },
            [promise = promise_](const GrammarCompiler::Result& result) {
              promise->set_value(result);
            }};
  }
  GrammarCompiler::Result wait() { return promise_->get_future().get(); }

 private:
  // Shared with the job, which may still be at it when the result is here.
  const std::shared_ptr<std::promise<GrammarCompiler::Result>> promise_ =
      std::make_shared<std::promise<GrammarCompiler::Result>>();
};

GrammarCompiler::Result ask(GrammarCompiler& compiler, const text::GrammarSource& source) {
  Answer answer;
  compiler.compile(answer.job(source));
  return answer.wait();
}

ErrorCode code_of(const GrammarCompiler::Result& result) { return std::get<Error>(result).code(); }

// Occupies the compiler's thread until it is released.
class Blocker {
 public:
  explicit Blocker(GrammarCompiler& compiler) {
    compiler.compile({regex("blocker"),
                      [state = state_] {
                        state->begun.set_value();
                        state->released.get_future().wait();
                        return false;
                      },
                      [state = state_](const auto&) { state->done = true; }});
    state_->begun.get_future().wait();
  }
  void release() { state_->released.set_value(); }
  bool done() const { return state_->done; }

 private:
  struct State {
    std::promise<void> begun, released;
    std::atomic<bool> done = false;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();  // the job may outlive this
};

class GrammarCompilerTest : public testing::Test {
 protected:
  std::shared_ptr<const text::Tokenizer> tokenizer_ = std::make_shared<ByteTokenizer>();
  GrammarCompiler compiler_{tokenizer_, options()};
};

TEST_F(GrammarCompilerTest, GivesTheGrammarOrWhatIsWrongWithIt) {
  EXPECT_EQ(std::get<Grammar>(ask(compiler_, regex("a+")))->source(), regex("a+"));
  EXPECT_EQ(code_of(ask(compiler_, regex("a("))), ErrorCode::kInvalidArgument);
}

class BrokenTokenizer final : public ByteTokenizer {
 public:
  std::string_view piece_of(TokenId) const override { throw std::runtime_error("broken"); }
};

TEST_F(GrammarCompilerTest, AFailureOfItsOwnIsAnAnswer) {
  GrammarCompiler compiler(std::make_shared<BrokenTokenizer>(), options());
  EXPECT_EQ(code_of(ask(compiler, regex("a"))), ErrorCode::kInternal);
}

TEST_F(GrammarCompilerTest, KeepsWhatWasUsedLast) {
  const GrammarCompiler::Options few{.max_waiting = 2, .max_kept = 2};
  GrammarCompiler compiler(tokenizer_, few);
  const auto a = std::get<Grammar>(ask(compiler, regex("a")));
  const auto b = std::get<Grammar>(ask(compiler, regex("b")));
  EXPECT_EQ(std::get<Grammar>(ask(compiler, regex("a"))), a);
  ask(compiler, regex("c"));  // now b is the one used longest ago
  EXPECT_EQ(std::get<Grammar>(ask(compiler, regex("a"))), a);
  EXPECT_NE(std::get<Grammar>(ask(compiler, regex("b"))), b);
}

TEST_F(GrammarCompilerTest, KeepsNoMoreMemoryThanItMay) {
  const GrammarCompiler::Options little{.max_waiting = 2, .max_kept_bytes = 1};
  GrammarCompiler compiler(tokenizer_, little);
  const auto a = std::get<Grammar>(ask(compiler, regex("a")));
  EXPECT_GT(a->bytes(), 1);
  EXPECT_NE(std::get<Grammar>(ask(compiler, regex("a"))), a);
}

TEST_F(GrammarCompilerTest, AnswersAtOnceWhatItKeepsHoweverBusy) {
  const auto a = std::get<Grammar>(ask(compiler_, regex("a")));
  ask(compiler_, regex("b("));
  Blocker blocker(compiler_);
  EXPECT_EQ(std::get<Grammar>(ask(compiler_, regex("a"))), a);
  EXPECT_EQ(code_of(ask(compiler_, regex("b("))), ErrorCode::kInvalidArgument);
  blocker.release();
}

TEST_F(GrammarCompilerTest, RefusesWhenTooManyWait) {
  Blocker blocker(compiler_);
  Answer first, second, third;
  compiler_.compile(first.job(regex("1")));
  compiler_.compile(second.job(regex("2")));
  try {
    compiler_.compile(third.job(regex("3")));
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
  }
  blocker.release();
  EXPECT_TRUE(std::get<Grammar>(first.wait()));
  EXPECT_TRUE(std::get<Grammar>(second.wait()));
}

TEST_F(GrammarCompilerTest, ShortOnesDoNotWaitForLongOnes) {
  GrammarCompiler compiler(tokenizer_, {.short_bytes = 1, .max_waiting = 2});
  Blocker blocker(compiler);  // longer than that
  EXPECT_TRUE(std::get<Grammar>(ask(compiler, regex("a"))));
  blocker.release();
}

TEST_F(GrammarCompilerTest, DoesNothingForWhomNobodyWaits) {
  Blocker blocker(compiler_);
  blocker.release();
  ask(compiler_, regex("a"));
  EXPECT_FALSE(blocker.done());
}

TEST_F(GrammarCompilerTest, AtItsEndWhatWaitsIsToldSo) {
  Blocker blocker(compiler_);
  Answer waiting, late;
  compiler_.compile(waiting.job(regex("a")));
  std::thread closing([&] { compiler_.close(); });
  const auto is_closed = [&] {
    try {
      compiler_.compile({regex("b"), [] { return false; }, [](const auto&) {}});
    } catch (const Error& error) {
      return error.code() == ErrorCode::kUnavailable;
    }
    return false;
  };
  while (!is_closed()) std::this_thread::yield();
  blocker.release();
  closing.join();
  EXPECT_EQ(code_of(waiting.wait()), ErrorCode::kUnavailable);
  EXPECT_THROW(compiler_.compile(late.job(regex("b"))), Error);
}

}  // namespace
}  // namespace mantou::server
