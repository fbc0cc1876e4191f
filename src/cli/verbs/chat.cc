#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "base/error.h"
#include "cli/answer.h"
#include "cli/load.h"
#include "cli/verbs/verbs.h"

namespace mantou::cli {
namespace {

// Several turns with one model. The engine keeps the row between turns, so that a turn forwards
// only what is new.
class Conversation {
 public:
  Conversation(const Options& options, LoadedModel& model)
      : options_(options),
        model_(model),
        engine_(std::move(model.executor), {1, options.model.batch_size}) {
    if (!options.prompt.system.empty())
      messages_.push_back({{"role", "system"}, {"content", options.prompt.system}});
  }

  void turn(const std::string& text) {
    nlohmann::json asked = messages_;
    asked.push_back({{"role", "user"}, {"content", text}});
    Request request = make_request(model_, options_);
    request.cache.session = "chat";
    request.prompt = model_.chat_template->render(asked, chat_options(options_.prompt)).ids;
    const Answer result = answer(engine_, std::move(request), model_.tokenizer,
                                 options_.limits.stop, print_now, /*interruptible=*/true);
    print_now(result.outcome.reason == FinishReason::kCancelled ? " …\n" : "\n");
    messages_ = std::move(asked);
    messages_.push_back({{"role", "assistant"}, {"content", result.text}});
    if (options_.prompt.stats) fmt::print(stderr, "[{}]\n", describe(result.outcome));
  }

 private:
  const Options& options_;
  LoadedModel& model_;
  Engine engine_;
  nlohmann::json messages_ = nlohmann::json::array();
};

}  // namespace

int run_chat(const Options& options) {
  LoadedModel model = load_model(options.model);
  if (model.chat_template->is_fallback())
    fmt::print(stderr, "{} has no chat template, ChatML is used.\n", model.name);
  const bool terminal = ::isatty(STDIN_FILENO) != 0;
  if (terminal)
    fmt::print(stderr, "{}: type a message; Ctrl-C stops an answer, Ctrl-D ends.\n", model.name);
  Conversation conversation(options, model);
  if (!options.prompt.prompt.empty()) conversation.turn(options.prompt.prompt);
  for (std::string line;;) {
    if (terminal) print_now("> ");
    if (!std::getline(std::cin, line)) break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      conversation.turn(line);
    } catch (const Error& error) {
      if (!terminal) throw;
      fmt::print(stderr, "mantou: {}\n", error.message());  // the conversation is as before
    }
  }
  if (terminal) fmt::print("\n");
  return 0;
}

}  // namespace mantou::cli
