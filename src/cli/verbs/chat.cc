#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string_view>

#include "cli/chat/line_editor.h"
#include "cli/chat/local_source.h"
#include "cli/chat/remote_source.h"
#include "cli/chat/session.h"
#include "cli/interrupt.h"
#include "cli/load.h"
#include "cli/private_file.h"
#include "cli/verbs/verbs.h"

namespace mantou::cli {
namespace {

bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

// Whether the terminal knows more than letters.
bool is_able() {
  const char* const name = std::getenv("TERM");
  return name != nullptr && *name != '\0' && std::string_view(name) != "dumb";
}

std::unique_ptr<LineReader> make_lines(bool typed, bool edited) {
  if (!edited) return std::make_unique<StreamLines>(std::cin, typed ? &std::cerr : nullptr);
  const std::filesystem::path state = state_directory();
  return std::make_unique<LineEditor>(STDIN_FILENO, STDOUT_FILENO,
                                      LineHistory(state.empty() ? state : state / "chat_history"),
                                      command_names());
}

void chat(AnswerSource& source, const Options& options, bool typed) {
  const bool shown = ::isatty(STDOUT_FILENO) != 0;
  const bool edited = typed && shown && is_able();
  // The editor reads Ctrl-C as a key; one that comes too late for an answer must not end the chat.
  std::optional<InterruptScope> scope;
  if (edited) scope.emplace([](void*) {}, nullptr);
  Screen screen(std::cout, std::cerr, {shown, shown && is_able() && !is_set("NO_COLOR")});
  if (typed)
    screen.note(
        fmt::format("{}: type a message; /help shows the commands, Ctrl-C stops an answer, "
                    "Ctrl-D ends.",
                    source.model()));
  Conversation begin;
  begin.system = options.prompt.system;
  begin.settings = {options.sampling, options.limits};
  ChatSession session(source, std::move(begin), screen, options.prompt.stats);
  if (!options.prompt.prompt.empty()) session.say(options.prompt.prompt);
  const std::unique_ptr<LineReader> lines = make_lines(typed, edited);
  MessageReader messages(*lines);
  session.run(messages, typed);
}

}  // namespace

int run_chat(const Options& options) {
  const bool typed = ::isatty(STDIN_FILENO) != 0;
  if (!options.remote.url.empty()) {
    RemoteSource source(RemoteClient(options.remote.url, options.remote.api_key), options, typed);
    chat(source, options, typed);
    return 0;
  }
  LoadedModel model = load_model(options.model);
  if (model.chat_template->is_fallback())
    fmt::print(stderr, "{} has no chat template, ChatML is used.\n", model.name);
  LocalSource source(options, model, typed);
  chat(source, options, typed);
  return 0;
}

}  // namespace mantou::cli
