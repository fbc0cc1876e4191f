#include "cli/chat_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "cli/answer.h"
#include "text/strip.h"

namespace mantou::cli {
namespace {

enum class Command { kReset, kHelp, kExit };

struct CommandName {
  std::string_view name, shown, help;  // `shown` is empty for another name of the one before
  Command command;
};

constexpr CommandName kCommands[] = {
    {"/reset", "/reset, /clear", "Begin a new conversation.", Command::kReset},
    {"/clear", "", "", Command::kReset},
    {"/help", "/help", "Show these commands.", Command::kHelp},
    {"/exit", "/exit, /quit, /bye", "End; so does Ctrl-D.", Command::kExit},
    {"/quit", "", "", Command::kExit},
    {"/bye", "", "", Command::kExit},
};

constexpr std::string_view kWayOut =
    "/reset begins a new conversation, a larger --ctx-size holds a longer one";

}  // namespace

std::string chat_commands_help() {
  std::string out;
  for (const CommandName& command : kCommands)
    if (!command.shown.empty()) out += fmt::format("  {:<32}{}\n", command.shown, command.help);
  return out;
}

ChatSession::ChatSession(const Options& options, LoadedModel& model)
    : options_(options),
      model_(model),
      engine_(std::move(model.executor), {1, {schedule_of(model, options.model)}}) {
  reset();
}

void ChatSession::reset() {
  messages_ = nlohmann::json::array();
  if (!options_.prompt.system.empty())
    messages_.push_back({{"role", "system"}, {"content", options_.prompt.system}});
}

bool ChatSession::take(std::string_view line) {
  const std::string_view word = text::strip(line);
  if (word.empty()) return true;
  const auto* const found =
      std::find_if(std::begin(kCommands), std::end(kCommands),
                   [&](const CommandName& command) { return command.name == word; });
  if (found == std::end(kCommands)) {
    say(line);
    return true;
  }
  switch (found->command) {
    case Command::kReset:
      reset();
      fmt::print(stderr, "A new conversation.\n");
      return true;
    case Command::kHelp:
      fmt::print(stderr, "{}", chat_commands_help());
      return true;
    case Command::kExit:
      return false;
  }
  return true;
}

void ChatSession::check_room(const Request& request) const {
  const int64_t context = model_.capabilities.context;
  if (int64_t(request.prompt.size()) >= context)
    fail(ErrorCode::kResourceExhausted,
         "the conversation has {} tokens with this message, the context holds {}: {}",
         request.prompt.size(), context, kWayOut);
}

void ChatSession::say(std::string_view message) {
  nlohmann::json asked = messages_;
  asked.push_back({{"role", "user"}, {"content", message}});
  Request request = make_request(model_, options_);
  request.prompt = model_.chat_template->render(asked, chat_options(options_.prompt)).ids;
  check_room(request);
  const Answer result = answer(engine_, std::move(request), model_.tokenizer, options_.limits.stop,
                               print_now, /*interruptible=*/true);
  const Outcome& outcome = result.outcome;
  print_now(outcome.reason == FinishReason::kCancelled ? " …\n" : "\n");
  messages_ = std::move(asked);
  messages_.push_back({{"role", "assistant"}, {"content", result.text}});
  if (options_.prompt.stats) fmt::print(stderr, "[{}]\n", describe(outcome));
  if (outcome.reason == FinishReason::kLength &&
      outcome.prompt_tokens + outcome.completion_tokens >= model_.capabilities.context)
    fmt::print(stderr,
               "mantou: the answer ends here because the context of {} tokens is full: {}\n",
               model_.capabilities.context, kWayOut);
}

}  // namespace mantou::cli
