#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "base/error.h"
#include "cli/answer.h"
#include "cli/chat_session.h"
#include "cli/load.h"
#include "cli/verbs/verbs.h"

namespace mantou::cli {

int run_chat(const Options& options) {
  LoadedModel model = load_model(options.model);
  if (model.chat_template->is_fallback())
    fmt::print(stderr, "{} has no chat template, ChatML is used.\n", model.name);
  const bool terminal = ::isatty(STDIN_FILENO) != 0;
  if (terminal)
    fmt::print(
        stderr,
        "{}: type a message; Ctrl-C stops an answer, /reset begins a new conversation, /help "
        "shows all\ncommands, /exit or Ctrl-D ends.\n",
        model.name);
  ChatSession session(options, model);
  if (!options.prompt.prompt.empty()) session.say(options.prompt.prompt);
  for (std::string line;;) {
    if (terminal) print_now("> ");
    if (!std::getline(std::cin, line)) break;
    try {
      if (!session.take(line)) return 0;
    } catch (const Error& error) {
      if (!terminal) throw;
      fmt::print(stderr, "mantou: {}\n", error.message());
    }
  }
  if (terminal) fmt::print("\n");
  return 0;
}

}  // namespace mantou::cli
