#include "cli/chat/session.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "text/strip.h"

namespace mantou::cli {
namespace {

using nlohmann::ordered_json;

// As a shell reads it.
std::filesystem::path path_of(const std::string& file) {
  const char* const home = std::getenv("HOME");
  if (file.starts_with("~/") && home != nullptr)
    return std::filesystem::path(home) / file.substr(2);
  return file;
}

// Where the last message of the user stands; messages.size() when there is none.
size_t last_question(const ordered_json& messages) {
  for (size_t i = messages.size(); i-- > 0;)
    if (messages[i]["role"] == "user") return i;
  return messages.size();
}

void cut(ordered_json& messages, size_t size) {
  while (messages.size() > size) messages.erase(messages.size() - 1);
}

constexpr std::string_view kNothingAsked = "there is no message yet";

// What other servers take as a seed everywhere.
uint64_t small_seed() { return random_bits() & 0x7FFFFFFF; }

}  // namespace

ChatSession::ChatSession(AnswerSource& source, Conversation begin, Screen& screen, bool stats)
    : source_(source),
      first_settings_(begin.settings),
      conversation_(std::move(begin)),
      screen_(screen),
      stats_(stats) {}

void ChatSession::run(MessageReader& input, bool forgiving) {
  bool interrupted = false;  // by the last Ctrl-C
  for (;;) {
    try {
      const Input next = input.next();
      if (next.kind == Line::Kind::kEnd) return;
      if (next.kind == Line::Kind::kInterrupt) {
        if (std::exchange(interrupted, true)) return;
        screen_.note("Ctrl-C once more, or Ctrl-D, ends the chat.");
        continue;
      }
      interrupted = false;
      if (!take(next)) return;
    } catch (const Error& error) {
      if (!forgiving) throw;
      screen_.note(fmt::format("mantou: {}", error.message()));
    }
  }
}

bool ChatSession::take(const Input& input) {
  const std::string_view text = text::strip(input.text);
  if (text.empty()) return true;
  if (input.verbatim || !text.starts_with('/')) {
    say(input.text);
    return true;
  }
  if (!text.starts_with("//")) return run_command(parse_command(text));
  say(text.substr(1));
  return true;
}

bool ChatSession::run_command(const GivenCommand& given) {
  switch (given.command) {
    case Command::kHelp:
      screen_.note(chat_commands_help());
      return true;
    case Command::kSystem:
      system(given.argument);
      return true;
    case Command::kSet:
      set(given.argument);
      return true;
    case Command::kRegenerate:
      regenerate();
      return true;
    case Command::kUndo:
      undo();
      return true;
    case Command::kClear:
      clear();
      return true;
    case Command::kStats:
      show_stats();
      return true;
    case Command::kSave:
      save_to(given.argument);
      return true;
    case Command::kLoad:
      load_from(given.argument);
      return true;
    case Command::kQuit:
      return false;
  }
  return true;
}

void ChatSession::say(std::string_view message) {
  ordered_json asked = conversation_.messages;
  asked.push_back({{"role", "user"}, {"content", message}});
  answer(std::move(asked), {});
}

void ChatSession::answer(ordered_json asked, std::optional<uint64_t> seed) {
  Question question;
  question.settings = conversation_.settings;
  question.seed = seed;
  question.messages = Conversation{conversation_.system, asked, {}}.all_messages();
  const Reply reply = source_.answer(
      question, [this](Piece piece, std::string_view text) { screen_.piece(piece, text); });
  const bool interrupted = reply.end == Reply::End::kInterrupted;
  if (reply.empty() && reply.error) throw *reply.error;
  screen_.end_answer(interrupted || reply.error);
  if (reply.empty() && interrupted) {
    screen_.note("Nothing was said yet: the conversation is as before.");
    return;
  }
  ordered_json said = {{"role", "assistant"}, {"content", reply.content}};
  if (!reply.reasoning.empty()) said["reasoning_content"] = reply.reasoning;
  asked.push_back(std::move(said));
  conversation_.messages = std::move(asked);
  last_ = reply.stats;
  if (reply.error) throw *reply.error;
  if (stats_) screen_.note(fmt::format("[{}]", describe(reply.stats)));
  warn_if_full(reply);
}

void ChatSession::warn_if_full(const Reply& reply) const {
  const AnswerStats& stats = reply.stats;
  if (reply.end != Reply::End::kLength || source_.context() == 0 || !stats.prompt_tokens ||
      !stats.completion_tokens)
    return;
  if (*stats.prompt_tokens + *stats.completion_tokens >= source_.context())
    screen_.note(
        fmt::format("mantou: the answer ends here because the context of {} tokens is full: {}",
                    source_.context(), kWaysOut));
}

void ChatSession::system(const std::string& text) {
  if (text.empty()) {
    screen_.note(conversation_.system.empty() ? "There is no system message."
                                              : conversation_.system);
    return;
  }
  conversation_.system = text == "\"\"" ? "" : text;
  last_.reset();
  screen_.note(conversation_.system.empty() ? "There is no system message now."
                                            : "The system message is replaced.");
}

void ChatSession::set(const std::string& argument) {
  if (argument.empty()) {
    screen_.note(show(conversation_.settings));
    return;
  }
  const size_t end = argument.find_first_of(" \t=");
  const std::string name = argument.substr(0, end);
  const std::string_view value =
      end == std::string::npos ? "" : text::strip(std::string_view(argument).substr(end + 1));
  if (value == "default")
    reset(conversation_.settings, name, first_settings_);
  else if (!value.empty())
    cli::set(conversation_.settings, name, value);
  else
    fail_param(ErrorCode::kInvalidArgument, name, "/set {} needs a value; /set shows the settings",
               name);
}

void ChatSession::regenerate() {
  ordered_json asked = conversation_.messages;
  const size_t question = last_question(asked);
  if (question == asked.size()) fail(ErrorCode::kInvalidArgument, "/regenerate: {}", kNothingAsked);
  cut(asked, question + 1);
  if (conversation_.settings.sampling.temperature == 0.0)
    screen_.note("The temperature is 0, so that every seed gives the same answer.");
  answer(std::move(asked), small_seed());
}

void ChatSession::undo() {
  const size_t question = last_question(conversation_.messages);
  if (question == conversation_.messages.size())
    fail(ErrorCode::kInvalidArgument, "/undo: {}", kNothingAsked);
  cut(conversation_.messages, question);
  last_.reset();
  screen_.note("The last message and its answer are forgotten.");
}

void ChatSession::clear() {
  conversation_.messages = ordered_json::array();
  last_.reset();
  screen_.note("A new conversation.");
}

void ChatSession::show_stats() const {
  if (!last_) {
    screen_.note("There is no answer yet to count.");
    return;
  }
  std::string text = describe(*last_);
  if (last_->prompt_tokens && last_->completion_tokens) {
    const int64_t used = *last_->prompt_tokens + *last_->completion_tokens;
    text += source_.context() > 0 ? fmt::format("\ncontext used {} of {}", used, source_.context())
                                  : fmt::format("\ncontext used {}", used);
  }
  screen_.note(text);
}

void ChatSession::save_to(const std::string& file) const {
  const std::filesystem::path path = path_of(file);
  save(conversation_, source_.model(), path);
  screen_.note(fmt::format("Saved to {}.", path.string()));
}

void ChatSession::load_from(const std::string& file) {
  SavedConversation saved = load_conversation(path_of(file));
  conversation_ = std::move(saved.conversation);
  last_.reset();
  screen_.note(fmt::format("{} messages{}.", conversation_.messages.size(),
                           saved.model.empty() || saved.model == source_.model()
                               ? ""
                               : fmt::format(", held with {}", saved.model)));
}

}  // namespace mantou::cli
