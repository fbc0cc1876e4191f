// Answers of the engine over a scripted executor: what the model is asked, what becomes of its
// text.
#include "cli/chat/local_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "base/error.h"
#include "cli/chat/session.h"
#include "engine/fake_executor.h"
#include "server/test_client.h"

namespace mantou::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Its model says `says_`; a message is a line of "role:content" and tokens are bytes.
class LocalSourceTest : public ::testing::Test {
 protected:
  void start(int64_t context) {
    FakeScript script;
    script.capabilities.vocab_size = 256;
    script.capabilities.context = context;
    script.token = [text = says_](const Request&, int64_t i) {
      return GeneratedToken{
          i < int64_t(text.size()) ? TokenId(uint8_t(text[size_t(i)])) : 0, 0, {}};
    };
    script.on_admit = [this](const Request& request) {
      std::lock_guard lock(mutex_);
      requests_.push_back(request);
    };
    model_.name = "tiny";
    model_.tokenizer = std::make_shared<server::ByteTokenizer>();
    model_.chat_template = std::make_shared<server::LineTemplate>();
    model_.capabilities = script.capabilities;
    model_.executor = std::make_unique<FakeExecutor>(script);
    source_ = std::make_unique<LocalSource>(options_, model_, /*interruptible=*/true);
  }
  Reply ask(const std::string& text, ChatSettings settings = {},
            std::optional<uint64_t> seed = {}) {
    shown_.clear();
    return source_->answer({{{{"role", "user"}, {"content", text}}}, settings, seed},
                           [this](Piece piece, std::string_view shown) {
                             shown_ += (piece == Piece::kReasoning ? "<" : "") +
                                       std::string(shown) + (piece == Piece::kReasoning ? ">" : "");
                           });
  }

  std::string says_ = "ok";
  Options options_;
  LoadedModel model_;
  std::mutex mutex_;
  std::vector<Request> requests_;
  std::unique_ptr<LocalSource> source_;
  std::string shown_;
};

TEST_F(LocalSourceTest, SettingsReachTheRequest) {
  start(1000);
  ChatSettings settings;
  settings.sampling.temperature = 0.25;
  settings.sampling.seed = 4;
  settings.limits.max_tokens = 1;
  Reply reply = ask("a", settings);
  EXPECT_EQ(reply.content, "o");
  EXPECT_EQ(reply.end, Reply::End::kLength);
  EXPECT_EQ(reply.stats.prompt_tokens, int64_t(std::string("user:a\nassistant:").size()));
  EXPECT_EQ(requests_[0].sampling.temperature, 0.25);
  EXPECT_EQ(requests_[0].sampling.seed, 4u);
  reply = ask("a", settings, 9);
  EXPECT_EQ(requests_[1].sampling.seed, 9u);
  settings.limits.max_tokens.reset();
  settings.limits.stop = {"k"};
  reply = ask("a", settings);
  EXPECT_EQ(reply.content, "o");
  EXPECT_EQ(reply.end, Reply::End::kStop);
}

TEST_F(LocalSourceTest, ReasoningIsTakenOutUnlessItIsToStay) {
  says_ = "<think>hm</think>\n\nyes";
  model_.output_format.reasoning = "think";
  start(1000);
  Reply reply = ask("a");
  EXPECT_EQ(reply.reasoning, "hm");
  EXPECT_EQ(reply.content, "yes");
  EXPECT_EQ(shown_, "<h><m>yes");
  options_.prompt.reasoning_format = "none";
  start(1000);
  reply = ask("a");
  EXPECT_EQ(reply.reasoning, "");
  EXPECT_EQ(reply.content, says_);
}

TEST_F(LocalSourceTest, AFullContextNamesTheWaysOut) {
  start(40);
  try {
    ask(std::string(30, 'x'));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_THAT(error.message(), HasSubstr("holds 40"));
    EXPECT_THAT(error.message(), HasSubstr("/clear"));
    EXPECT_THAT(error.message(), HasSubstr("--ctx-size"));
  }
  EXPECT_TRUE(requests_.empty());
  EXPECT_EQ(ask("b").content, "ok");
}

TEST_F(LocalSourceTest, AnAnswerCutByTheContextSaysSo) {
  says_ = std::string(100, 'x');
  start(30);
  std::ostringstream out, notes;
  Screen screen(out, notes, {});
  ChatSession session(*source_, {}, screen, /*stats=*/false);
  session.say("a");
  EXPECT_THAT(notes.str(), HasSubstr("context of 30 tokens is full"));
  EXPECT_THAT(notes.str(), HasSubstr("/clear"));
  notes.str("");
  Conversation short_answers;
  short_answers.settings.limits.max_tokens = 3;
  ChatSession another(*source_, std::move(short_answers), screen, /*stats=*/false);
  another.say("a");
  EXPECT_EQ(notes.str(), "");
}

}  // namespace
}  // namespace mantou::cli
