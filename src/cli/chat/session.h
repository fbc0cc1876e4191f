// A chat: what was typed in, answers out, and the commands. It holds the conversation and knows
// nothing of who answers (AnswerSource) or where lines come from (MessageReader). Main thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cli/chat/answer_source.h"
#include "cli/chat/commands.h"
#include "cli/chat/conversation.h"
#include "cli/chat/line_reader.h"
#include "cli/chat/screen.h"

namespace mantou::cli {

// What helps when a conversation fills the context; the end of a message.
inline constexpr std::string_view kWaysOut =
    "/undo takes the last message back, /clear begins a new conversation, a larger --ctx-size "
    "holds a longer one";

class ChatSession {
 public:
  // `begin`: system message and settings that the command line gave. All but `begin` must outlive
  // the session. With `stats` counts and speeds follow each answer.
  ChatSession(AnswerSource& source, Conversation begin, Screen& screen, bool stats);

  // Until the input ends or a command ends it. With `forgiving` an Error is a remark and the chat
  // goes on, and two Ctrl-C in a row end it; otherwise the first Error is thrown.
  void run(MessageReader& input, bool forgiving);

  // False: the input ends the session. What goes wrong leaves the conversation as it was before,
  // but for the part of an answer that had come, which is kept.
  bool take(const Input& input);
  // A message, whatever it looks like.
  void say(std::string_view message);

  const Conversation& conversation() const { return conversation_; }

 private:
  bool run_command(const GivenCommand& given);
  // Answers the messages of `asked`, which become the conversation's when something was said.
  void answer(nlohmann::ordered_json asked, std::optional<uint64_t> seed);
  void warn_if_full(const Reply& reply) const;

  void system(const std::string& text);
  void set(const std::string& argument);
  void regenerate();
  void undo();
  void clear();
  void show_stats() const;
  void save_to(const std::string& file) const;
  void load_from(const std::string& file);

  AnswerSource& source_;
  const ChatSettings first_settings_;
  Conversation conversation_;
  Screen& screen_;
  const bool stats_;
  std::optional<AnswerStats> last_;  // of the answer that ends the conversation
};

}  // namespace mantou::cli
