// Chat over a scripted executor: which lines are commands, and what happens to the conversation.
#include "cli/chat_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "base/error.h"
#include "cli/flags.h"
#include "cli/verbs/verbs.h"
#include "engine/fake_executor.h"
#include "server/test_client.h"

namespace mantou::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Its model answers "ok" to everything; a message is a line of "role:content" and tokens are bytes.
class ChatSessionTest : public ::testing::Test {
 protected:
  void start(int64_t context, int answer_tokens = 2) {
    FakeScript script;
    script.capabilities.vocab_size = 256;
    script.capabilities.context = context;
    script.token = [answer_tokens](const Request&, int64_t i) {
      return GeneratedToken{i < answer_tokens ? TokenId("ok"[i % 2]) : 0, 0, {}};
    };
    script.on_admit = [this](const Request& request) {
      std::lock_guard lock(mutex_);
      prompts_.push_back(server::ByteTokenizer().decode(request.prompt, false));
    };
    model_.tokenizer = std::make_shared<server::ByteTokenizer>();
    model_.chat_template = std::make_shared<server::LineTemplate>();
    model_.capabilities = script.capabilities;
    model_.executor = std::make_unique<FakeExecutor>(script);
    session_ = std::make_unique<ChatSession>(options_, model_);
  }
  // What the line has printed to standard error.
  std::string take(std::string_view line, bool goes_on = true) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(session_->take(line), goes_on) << line;
    ::testing::internal::GetCapturedStdout();
    return ::testing::internal::GetCapturedStderr();
  }

  Options options_;
  LoadedModel model_;
  std::mutex mutex_;
  std::vector<std::string> prompts_;
  std::unique_ptr<ChatSession> session_;
};

TEST_F(ChatSessionTest, ResetAndClearBeginAnewWithTheSystemMessage) {
  options_.prompt.system = "S";
  start(1000);
  take("a");
  take("b");
  take("  /reset \r");
  take("c");
  take("/clear");
  take("d");
  EXPECT_THAT(prompts_,
              ElementsAre("system:S\nuser:a\nassistant:",
                          "system:S\nuser:a\nassistant:ok\nuser:b\nassistant:",
                          "system:S\nuser:c\nassistant:", "system:S\nuser:d\nassistant:"));
}

TEST_F(ChatSessionTest, OnlyCommandsAloneOnALineAreCommands) {
  start(1000);
  for (const char* line : {"/etc", "say /exit", "/reset now", "/RESET"}) take(line);
  EXPECT_EQ(prompts_.size(), 4u);
  EXPECT_EQ(take(" \t"), "");
  take("/exit", /*goes_on=*/false);
  EXPECT_EQ(prompts_.size(), 4u);
}

TEST_F(ChatSessionTest, HelpNamesEveryCommandAndSoDoesTheVerbsHelp) {
  start(1000);
  const std::string help = take("/help"), verb = help_verb(find_verb("chat"));
  for (const char* name : {"/reset", "/clear", "/help", "/exit", "/quit", "/bye"}) {
    EXPECT_THAT(help, HasSubstr(name));
    EXPECT_THAT(verb, HasSubstr(name));
  }
  EXPECT_TRUE(prompts_.empty());
}

TEST_F(ChatSessionTest, AFullContextNamesTheWaysOutAndResetIsOne) {
  start(40);
  take("a");  // 17 tokens of prompt
  try {
    take(std::string(30, 'x'));
    FAIL();
  } catch (const Error& error) {
    ::testing::internal::GetCapturedStdout();
    ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_THAT(error.message(), HasSubstr("holds 40"));
    EXPECT_THAT(error.message(), HasSubstr("/reset"));
    EXPECT_THAT(error.message(), HasSubstr("--ctx-size"));
  }
  EXPECT_EQ(prompts_.size(), 1u);
  take("/reset");
  take("b");
  EXPECT_EQ(prompts_.back(), "user:b\nassistant:");
}

TEST_F(ChatSessionTest, AnAnswerCutByTheContextSaysSo) {
  start(30, /*answer_tokens=*/100);
  const std::string said = take("a");
  EXPECT_THAT(said, HasSubstr("context of 30 tokens is full"));
  EXPECT_THAT(said, HasSubstr("/reset"));
  options_.limits.max_tokens = 3;
  take("/reset");
  EXPECT_EQ(take("a"), "");
}

}  // namespace
}  // namespace mantou::cli
