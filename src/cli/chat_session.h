// A conversation in the terminal: lines in, answers out. Used by `chat`; main thread.
//
// A line is a message to the model, or a command when it stands alone on it: the table of
// chat_session.cc.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cli/load.h"
#include "cli/options.h"
#include "engine/engine.h"

namespace mantou::cli {

class ChatSession {
 public:
  // Takes the model's executor; both must outlive the session.
  ChatSession(const Options& options, LoadedModel& model);

  // False: the line ends the session. What goes wrong leaves the conversation as it was before; a
  // conversation that fills the context is kResourceExhausted.
  bool take(std::string_view line);
  // A message, whatever it looks like.
  void say(std::string_view message);

 private:
  void reset();
  void check_room(const Request& request) const;

  const Options& options_;
  LoadedModel& model_;
  // Keeps the row between turns, so that a turn forwards only what is new.
  Engine engine_;
  nlohmann::json messages_;
};

// The commands for the help, a line each.
std::string chat_commands_help();

}  // namespace mantou::cli
