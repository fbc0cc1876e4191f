#include "cli/chat/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"
#include "text/strip.h"

namespace mantou::cli {
namespace {

enum class Argument { kNone, kOptional, kNeeded };

struct Entry {
  Command command;
  std::vector<std::string_view> names;  // the first is the one in messages
  Argument argument;
  std::string_view placeholder, help;
};

const std::vector<Entry>& table() {
  static const std::vector<Entry> entries = {
      {Command::kHelp, {"/help"}, Argument::kNone, "", "Show these commands."},
      {Command::kSystem,
       {"/system"},
       Argument::kOptional,
       "[TEXT]",
       "Show the system message, or replace it; \"\" takes it away."},
      {Command::kSet,
       {"/set"},
       Argument::kOptional,
       "[NAME VALUE]",
       "Show the settings, or change one, such as temperature; the value \"default\" takes a "
       "change back."},
      {Command::kRegenerate,
       {"/regenerate", "/retry"},
       Argument::kNone,
       "",
       "Answer the last message once more, with another seed."},
      {Command::kUndo, {"/undo"}, Argument::kNone, "", "Forget the last message and its answer."},
      {Command::kClear,
       {"/clear", "/reset"},
       Argument::kNone,
       "",
       "Begin a new conversation; system message and settings stay."},
      {Command::kStats,
       {"/stats"},
       Argument::kNone,
       "",
       "Tokens and speed of the last answer, and how full the context is."},
      {Command::kSave, {"/save"}, Argument::kNeeded, "FILE", "Keep the conversation in a file."},
      {Command::kLoad,
       {"/load"},
       Argument::kNeeded,
       "FILE",
       "Go on with a conversation that was saved."},
      {Command::kQuit, {"/quit", "/exit", "/bye"}, Argument::kNone, "", "End; so does Ctrl-D."},
  };
  return entries;
}

constexpr std::string_view kHowToType =
    "A message that begins with / is typed with two of them. A line that ends with \\ goes on in "
    "the\nnext; \"\"\" begins a message of many lines, and ends it. In a terminal a pasted text is "
    "one message,\nAlt-Enter begins a line, the arrow keys bring earlier messages back, Tab "
    "completes "
    "commands,\nand Ctrl-C stops an answer.\n";

const Entry& find(std::string_view name) {
  for (const Entry& entry : table())
    if (std::find(entry.names.begin(), entry.names.end(), name) != entry.names.end()) return entry;
  std::string hint = did_you_mean(name, command_names());
  if (hint.empty()) {
    std::vector<std::string_view> first;
    for (const Entry& entry : table()) first.push_back(entry.names[0]);
    hint = fmt::format("; there are {}", fmt::join(first, ", "));
  }
  fail_param(ErrorCode::kInvalidArgument, std::string(name),
             "there is no command {}{} (a message that begins with / is typed with two of them)",
             name, hint);
}

}  // namespace

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Entry& entry : table())
    names.insert(names.end(), entry.names.begin(), entry.names.end());
  return names;
}

GivenCommand parse_command(std::string_view text) {
  const std::string_view name = text.substr(0, text.find_first_of(" \t\r\n"));
  const std::string_view argument = text::strip(text.substr(name.size()));
  const Entry& entry = find(name);
  if (entry.argument == Argument::kNeeded && argument.empty())
    fail_param(ErrorCode::kInvalidArgument, std::string(name), "{} needs {}", name,
               entry.placeholder);
  if (entry.argument == Argument::kNone && !argument.empty())
    fail_param(ErrorCode::kInvalidArgument, std::string(name), "{} takes nothing such as \"{}\"",
               name, argument);
  return {entry.command, std::string(argument)};
}

std::string chat_commands_help() {
  constexpr size_t kIndent = 32, kWidth = 66;
  std::string out;
  for (const Entry& entry : table()) {
    std::string shown = fmt::format("{}", fmt::join(entry.names, ", "));
    if (!entry.placeholder.empty()) shown += fmt::format(" {}", entry.placeholder);
    out += fmt::format("  {:<{}}", shown, kIndent);
    std::string_view help = entry.help;
    while (help.size() > kWidth) {
      const size_t space = help.rfind(' ', kWidth);
      out += fmt::format("{}\n  {:{}}", help.substr(0, space), "", kIndent);
      help.remove_prefix(space + 1);
    }
    out += fmt::format("{}\n", help);
  }
  return out + "\n" + std::string(kHowToType);
}

}  // namespace mantou::cli
