// The commands of a chat: one table, from which come the parser, /help and the pages of the help.
// Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mantou::cli {

enum class Command {
  kHelp,
  kSystem,
  kSet,
  kRegenerate,
  kUndo,
  kClear,
  kStats,
  kSave,
  kLoad,
  kQuit,
};

struct GivenCommand {
  Command command;
  std::string argument;  // stripped; may be empty where the table allows it
};

// `text` begins with "/". Errors: there is no such command, with the nearest; it needs an argument,
// or takes none.
GivenCommand parse_command(std::string_view text);

std::vector<std::string> command_names();

// A line a command, and how to type long messages.
std::string chat_commands_help();

}  // namespace mantou::cli
