// A chat over streams with a scripted answerer: what is a command and what a message, what happens
// to the conversation, what is printed where.
#include "cli/chat/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "cli/flags.h"
#include "cli/verbs/verbs.h"

namespace mantou::cli {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Says "a1", "a2", … unless told otherwise, and keeps what it was asked.
class FakeSource final : public AnswerSource {
 public:
  const std::string& model() const override { return model_; }
  int64_t context() const override { return 100; }
  Reply answer(const Question& question, const ShowPiece& show) override {
    questions.push_back(question);
    Reply reply;
    if (next) {
      reply = next();
      next = nullptr;
    } else {
      reply.content = fmt::format("a{}", questions.size());
    }
    reply.stats.prompt_tokens = 40;
    reply.stats.cached_tokens = 30;
    reply.stats.completion_tokens = 2;
    if (!reply.reasoning.empty()) show(Piece::kReasoning, reply.reasoning);
    if (!reply.content.empty()) show(Piece::kContent, reply.content);
    return reply;
  }
  // "system:S user:a" of the last question.
  std::string asked() const {
    std::string text;
    for (const ordered_json& message : questions.back().messages)
      text += (text.empty() ? "" : " ") + message["role"].get<std::string>() + ":" +
              message["content"].get<std::string>();
    return text;
  }

  std::vector<Question> questions;
  std::function<Reply()> next;

 private:
  const std::string model_ = "fake";
};

Reply interrupted(std::string said) {
  Reply reply;
  reply.content = std::move(said);
  reply.end = Reply::End::kInterrupted;
  return reply;
}

class ChatSessionTest : public ::testing::Test {
 protected:
  ChatSessionTest() {
    std::filesystem::create_directories(folder_);
    begin();
  }
  ~ChatSessionTest() override { std::filesystem::remove_all(folder_); }

  void begin(Conversation conversation = {}, ScreenOptions options = {}) {
    screen_.emplace(out_, notes_, options);
    session_.emplace(source_, std::move(conversation), *screen_, /*stats=*/false);
  }
  // Types the text and returns the remarks.
  std::string type(const std::string& text) {
    std::istringstream in(text);
    StreamLines lines(in);
    MessageReader messages(lines);
    notes_.str("");
    session_->run(messages, /*forgiving=*/true);
    return notes_.str();
  }
  std::string messages() const { return session_->conversation().messages.dump(); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("mantou_chat_test." + std::to_string(::getpid()));
  FakeSource source_;
  std::ostringstream out_, notes_;
  std::optional<Screen> screen_;
  std::optional<ChatSession> session_;
};

TEST_F(ChatSessionTest, AnswersGoOutAndNothingElse) {
  EXPECT_EQ(type("one\n\n  \ntwo\r\n/stats\n"),
            "prompt 40 tokens (30 cached), 0.0 tok/s | answer 2 tokens, 0.0 tok/s | first token "
            "after 0.00 s\ncontext used 42 of 100\n");
  EXPECT_EQ(out_.str(), "a1\na2\n");
  EXPECT_EQ(source_.asked(), "user:one assistant:a1 user:two");
}

TEST_F(ChatSessionTest, LongMessages) {
  type("a \\\nb\\\n\nc\n");
  EXPECT_EQ(source_.questions[0].messages[0]["content"], "a \nb\n");
  type("\"\"\"\n/one\n\n two\n\"\"\"\n");
  EXPECT_EQ(source_.questions.back().messages.back()["content"], "/one\n\n two");
  type("\"\"\"/one\ntwo\"\"\"\n");
  EXPECT_EQ(source_.questions.back().messages.back()["content"], "/one\ntwo");
  type("\"\"\"one\"\"\"\n");
  EXPECT_EQ(source_.questions.back().messages.back()["content"], "one");
  const size_t count = source_.questions.size();
  EXPECT_THAT(type("\"\"\"\nnever ended\n"), HasSubstr("has no \"\"\" at its end"));
  EXPECT_EQ(source_.questions.size(), count);
}

TEST_F(ChatSessionTest, TwoSlashesAreALiteralOne) {
  type("//help\n");
  EXPECT_EQ(source_.asked(), "user:/help");
}

TEST_F(ChatSessionTest, UnknownCommandsAreNoMessages) {
  EXPECT_THAT(type("/undu\n"), HasSubstr("there is no command /undu"));
  EXPECT_THAT(type("/undu\n"), HasSubstr("did you mean /undo?"));
  EXPECT_THAT(type("/etc/passwd\n"), HasSubstr("there are /help, /system,"));
  EXPECT_THAT(type("/undo now\n"), HasSubstr("/undo takes nothing such as \"now\""));
  EXPECT_THAT(type("/save\n"), HasSubstr("/save needs FILE"));
  EXPECT_THAT(source_.questions, IsEmpty());
}

TEST_F(ChatSessionTest, WhatIsPipedInEndsWithItsFirstError) {
  std::istringstream in("/nothing\nhello\n");
  StreamLines lines(in);
  MessageReader messages(lines);
  EXPECT_THROW(session_->run(messages, /*forgiving=*/false), Error);
  EXPECT_THAT(source_.questions, IsEmpty());
}

TEST_F(ChatSessionTest, HelpNamesEveryCommandAndSoDoesTheVerbsHelp) {
  const std::string help = type("/help\n"), verb = help_verb(find_verb("chat"));
  for (const char* name : {"/help", "/system", "/save", "/load", "/regenerate", "/undo", "/clear",
                           "/stats", "/set", "/quit"}) {
    EXPECT_THAT(help, HasSubstr(name));
    EXPECT_THAT(verb, HasSubstr(name));
  }
  for (const char* end : {"/quit", "/exit", "/bye"}) type(std::string(end) + "\nafter the end\n");
  EXPECT_THAT(source_.questions, IsEmpty());
}

TEST_F(ChatSessionTest, SystemMessage) {
  begin({"S", ordered_json::array(), {}});
  EXPECT_EQ(type("/system\n"), "S\n");
  type("a\n/system  Be  brief. \nb\n");
  EXPECT_EQ(source_.asked(), "system:Be  brief. user:a assistant:a1 user:b");
  type("/clear\nc\n");
  EXPECT_EQ(source_.asked(), "system:Be  brief. user:c");
  type("/system \"\"\nd\n");
  EXPECT_EQ(source_.asked(), "user:c assistant:a3 user:d");
}

TEST_F(ChatSessionTest, UndoTakesTheLastTurnBack) {
  EXPECT_THAT(type("/undo\n"), HasSubstr("there is no message yet"));
  type("a\nb\n/undo\nc\n");
  EXPECT_EQ(source_.asked(), "user:a assistant:a1 user:c");
  type("/undo\n/undo\n");
  EXPECT_EQ(messages(), "[]");
}

TEST_F(ChatSessionTest, RegenerateAsksTheSameWithOtherSeeds) {
  EXPECT_THAT(type("/regenerate\n"), HasSubstr("there is no message yet"));
  type("/set seed 7\na\n/regenerate\n/regenerate\n");
  ASSERT_EQ(source_.questions.size(), 3u);
  EXPECT_EQ(source_.asked(), "user:a");
  EXPECT_FALSE(source_.questions[0].seed);
  ASSERT_TRUE(source_.questions[1].seed && source_.questions[2].seed);
  EXPECT_NE(source_.questions[1].seed, source_.questions[2].seed);
  EXPECT_EQ(messages(), R"([{"role":"user","content":"a"},{"role":"assistant","content":"a3"}])");
}

TEST_F(ChatSessionTest, AFailedRegenerateKeepsTheOldAnswer) {
  type("a\n");
  const std::string before = messages();
  source_.next = []() -> Reply { fail(ErrorCode::kIo, "gone"); };
  EXPECT_THAT(type("/regenerate\n"), HasSubstr("mantou: gone"));
  EXPECT_EQ(messages(), before);
  source_.next = [] { return interrupted(""); };
  type("/regenerate\n");
  EXPECT_EQ(messages(), before);
}

TEST_F(ChatSessionTest, AnInterruptedAnswerKeepsWhatWasSaid) {
  begin({}, {.terminal = true});
  source_.next = [] { return interrupted("so f"); };
  type("a\nb\n");
  EXPECT_EQ(source_.asked(), "user:a assistant:so f user:b");
  EXPECT_EQ(out_.str(), "so f …\na2\n");
  source_.next = [] { return interrupted(""); };
  EXPECT_THAT(type("c\n"), HasSubstr("Nothing was said yet"));
  EXPECT_THAT(messages(), Not(HasSubstr("\"c\"")));
}

TEST_F(ChatSessionTest, AnAnswerThatBreaksOffKeepsWhatCame) {
  source_.next = [] {
    Reply reply;
    reply.content = "half";
    reply.error = Error(ErrorCode::kIo, "the line broke");
    return reply;
  };
  EXPECT_THAT(type("a\n"), HasSubstr("the line broke"));
  type("b\n");
  EXPECT_EQ(source_.asked(), "user:a assistant:half user:b");
  source_.next = [] {
    Reply reply;
    reply.error = Error(ErrorCode::kIo, "nobody there");
    return reply;
  };
  EXPECT_THAT(type("c\n"), HasSubstr("nobody there"));
  EXPECT_THAT(messages(), Not(HasSubstr("\"c\"")));
}

TEST_F(ChatSessionTest, ReasoningIsKeptApartAndShownDim) {
  const auto thinks = [] {
    Reply reply;
    reply.reasoning = "hm\x1b[31m\n";
    reply.content = "\n\nyes";
    return reply;
  };
  source_.next = thinks;
  type("a\n");
  EXPECT_EQ(out_.str(), "\n\nyes\n");  // piped: the answer's text and nothing else
  EXPECT_THAT(messages(), HasSubstr(R"("content":"\n\nyes","reasoning_content":"hm)"));

  out_.str("");
  begin({}, {.terminal = true, .colour = true});
  source_.next = thinks;
  type("a\n");
  EXPECT_EQ(out_.str(), "\x1b[2mhm[31m\n\x1b[0m\nyes\n");  // and no colours of the model's

  out_.str("");
  begin({}, {.terminal = true});
  source_.next = thinks;
  type("a\n");
  EXPECT_EQ(out_.str(), "[thinking]\nhm[31m\n[answer]\nyes\n");
}

TEST_F(ChatSessionTest, AnAnswerThatCannotBeWrittenIsAnError) {
  out_.setstate(std::ios::badbit);
  EXPECT_THAT(type("a\n"), HasSubstr("cannot write the answer"));
}

TEST_F(ChatSessionTest, SettingsAreThoseOfTheFlags) {
  ChatSettings first;
  first.sampling.temperature = 0.3;
  begin({"", ordered_json::array(), first});
  EXPECT_THAT(type("/set temperature 5.1\n"), HasSubstr("out of range: 0 to 5"));
  EXPECT_THAT(type("/set top_p 2\n"), HasSubstr("out of range: 0 to 1"));
  EXPECT_THAT(type("/set top_k x\n"), HasSubstr("is not a whole number"));
  EXPECT_THAT(type("/set tempreature 1\n"), HasSubstr("did you mean temperature?"));
  EXPECT_THAT(type("/set threads 1\n"), HasSubstr("there is no setting \"threads\""));
  EXPECT_THAT(type("/set top_p\n"), HasSubstr("/set top_p needs a value"));
  EXPECT_EQ(to_json(session_->conversation().settings).dump(), R"({"temperature":0.3})");
  EXPECT_EQ(type("/set temperature 0.5\n/set top_p=0.9\n/set top_k 40\n/set min_p 0.1\n"
                 "/set seed 18446744073709551615\n/set max_tokens 12\na\n"),
            "");
  EXPECT_EQ(to_json(source_.questions.back().settings).dump(),
            R"({"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,)"
            R"("seed":18446744073709551615,"max_tokens":12})");
  type("/set temperature default\n/set seed -1\n/set top_p default\n/clear\nb\n");
  EXPECT_EQ(to_json(source_.questions.back().settings).dump(),
            R"({"temperature":0.3,"top_k":40,"min_p":0.1,"max_tokens":12})");
  EXPECT_THAT(type("/set\n"), HasSubstr("temperature             0.3\n"));
}

TEST_F(ChatSessionTest, SavedAndLoadedAgain) {
  begin({"S\"", ordered_json::array(), {}});
  source_.next = [] {
    Reply reply;
    reply.reasoning = "r";
    reply.content = "ü\n\"";
    return reply;
  };
  type("a\n/set temperature 0.1\n/set stop X\n/save " + file("chat one.json") + "\n");
  const std::string before = messages();
  const auto mode = std::filesystem::status(file("chat one.json")).permissions();
  EXPECT_EQ(mode, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  begin();
  EXPECT_EQ(type("/load " + file("chat one.json") + "\n"), "2 messages.\n");
  EXPECT_EQ(messages(), before);
  EXPECT_EQ(session_->conversation().system, "S\"");
  EXPECT_EQ(to_json(session_->conversation().settings).dump(),
            R"({"temperature":0.1,"stop":["X"]})");
  type("b\n");
  EXPECT_EQ(source_.asked(), "system:S\" user:a assistant:ü\n\" user:b");
  type("/save " + file("chat one.json") + "\n");  // over itself
  EXPECT_THAT(read_file(file("chat one.json")), HasSubstr("\"content\": \"b\""));
}

TEST_F(ChatSessionTest, AFileThatDoesNotLoadLeavesTheConversation) {
  type("a\n/set top_k 3\n");
  const std::string before = messages();
  const auto refused = [&](const std::string& name, const std::string& text) {
    write(name, text);
    const std::string said = type("/load " + file(name) + "\n");
    EXPECT_THAT(said, HasSubstr(file(name))) << text;
    EXPECT_EQ(messages(), before) << text;
    EXPECT_EQ(session_->conversation().settings.sampling.top_k, 3) << text;
    return said;
  };
  const std::string head = R"({"format": "mantou-chat", "version": 1, )";
  EXPECT_THAT(refused("cut", head + R"("messages": [)"), HasSubstr("broken JSON at byte"));
  EXPECT_THAT(refused("other", "[]"), HasSubstr("it lacks \"format\""));
  EXPECT_THAT(refused("new", R"({"format": "mantou-chat", "version": 2})"),
              HasSubstr("version 2 of saved conversations is not known here"));
  EXPECT_THAT(refused("none", head + R"("system": "x"})"), HasSubstr("'messages' must be"));
  EXPECT_THAT(refused("role", head + R"("messages": [{"role": "tool", "content": "x"}]})"),
              HasSubstr("'messages[0].role' must be \"user\" or \"assistant\", not \"tool\""));
  EXPECT_THAT(refused("text", head + R"("messages": [{"role": "user", "content": 1}]})"),
              HasSubstr("'messages[0].content' must be a text"));
  EXPECT_THAT(refused("range", head + R"("messages": [], "settings": {"top_p": 3}})"),
              HasSubstr("top_p: \"3\" is out of range: 0 to 1"));
  EXPECT_THAT(refused("name", head + R"("messages": [], "settings": {"threads": 3}})"),
              HasSubstr("there is no setting \"threads\""));
  EXPECT_THAT(refused("kind", head + R"("messages": [], "settings": {"top_p": {}}})"),
              HasSubstr("'settings.top_p' must be a value"));
  EXPECT_THAT(refused("twice", head + R"("messages": [], "version": 1})"),
              HasSubstr("\"version\" stands twice"));
  EXPECT_THAT(type("/load " + file("nowhere") + "\n"), HasSubstr(file("nowhere")));
  EXPECT_EQ(messages(), before);
}

TEST_F(ChatSessionTest, SaveReplacesSavedConversationsOnly) {
  write("notes.txt", "mine");
  EXPECT_THAT(type("/save " + file("notes.txt") + "\n"), HasSubstr("no saved conversation"));
  EXPECT_EQ(read_file(file("notes.txt")), "mine");
  EXPECT_THAT(type("/save " + file("no/such/folder") + "\n"), HasSubstr("cannot write the file"));
}

// Ctrl-C and lines as a terminal gives them.
class ScriptedLines final : public LineReader {
 public:
  explicit ScriptedLines(std::vector<Line> lines) : lines_(std::move(lines)) {}
  Line read(std::string_view) override {
    return next_ < lines_.size() ? lines_[next_++] : Line{Line::Kind::kEnd};
  }

 private:
  const std::vector<Line> lines_;
  size_t next_ = 0;
};

TEST_F(ChatSessionTest, TheSecondInterruptInARowEnds) {
  const Line stop{Line::Kind::kInterrupt}, a{Line::Kind::kText, "a"};
  const Line quotes{Line::Kind::kText, "\"\"\""};
  ScriptedLines lines({stop, a, stop, a, quotes, stop, a, stop, stop, a});
  MessageReader messages(lines);
  session_->run(messages, /*forgiving=*/true);
  EXPECT_EQ(source_.questions.size(), 3u);
  EXPECT_THAT(notes_.str(), HasSubstr("Ctrl-C once more"));
}

TEST_F(ChatSessionTest, SeveralLinesAtOnceAreAMessage) {
  ScriptedLines lines({{Line::Kind::kText, "/quit\nor not\\"}});
  MessageReader messages(lines);
  session_->run(messages, /*forgiving=*/true);
  EXPECT_EQ(source_.asked(), "user:/quit\nor not\\");
}

}  // namespace
}  // namespace mantou::cli
