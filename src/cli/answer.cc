#include "cli/answer.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <optional>

#include "base/mailbox.h"
#include "text/stop_matcher.h"

namespace mantou::cli {
namespace {

struct Piece {
  std::string text;
  std::optional<Outcome> end;
};

class TerminalSink final : public Sink {
 public:
  TerminalSink(text::TextStream stream, std::shared_ptr<Mailbox<Piece>> out)
      : stream_(std::move(stream)), out_(std::move(out)) {}

  bool on_admitted(const Admission&) override { return true; }
  void on_progress(int64_t, int64_t) override {}
  Flow on_token(uint64_t, const GeneratedToken& token) override {
    std::string text = stream_.push(token.id);
    if (!text.empty()) out_->push({std::move(text), {}});
    return stream_.stopped() ? Flow::kStop : Flow::kMore;
  }
  void on_done(const Outcome& outcome) override { out_->push({stream_.finish(), outcome}); }

 private:
  text::TextStream stream_;
  const std::shared_ptr<Mailbox<Piece>> out_;
};

std::atomic<Generation*> interruptible_generation{nullptr};

void cancel_generation(int) {
  // Generation::cancel touches lock-free atomics only, so a signal handler may call it.
  if (Generation* const generation = interruptible_generation.load()) generation->cancel();
}

// While it lives, Ctrl-C cancels the generation.
class InterruptScope {
 public:
  explicit InterruptScope(std::shared_ptr<Generation> generation)
      : generation_(std::move(generation)) {
    interruptible_generation.store(generation_.get());
    struct sigaction action{};
    action.sa_handler = cancel_generation;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGINT, &action, &previous_);
  }
  ~InterruptScope() {
    ::sigaction(SIGINT, &previous_, nullptr);
    interruptible_generation.store(nullptr);
  }
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  std::shared_ptr<Generation> generation_;
  struct sigaction previous_{};
};

double rate(int64_t tokens, double seconds) { return seconds > 0 ? double(tokens) / seconds : 0; }

}  // namespace

Answer answer(Engine& engine, Request request, std::shared_ptr<const text::Tokenizer> tokenizer,
              const std::vector<std::string>& stops,
              const std::function<void(std::string_view)>& print, bool interruptible) {
  const auto mailbox = std::make_shared<Mailbox<Piece>>();
  const auto generation = engine.open(
      std::move(request),
      std::make_unique<TerminalSink>(text::TextStream(std::move(tokenizer), stops), mailbox));
  std::optional<InterruptScope> scope;
  if (interruptible) scope.emplace(generation);
  Answer answer;
  while (std::optional<Piece> piece = mailbox->pop()) {
    if (!piece->text.empty()) {
      answer.text += piece->text;
      print(piece->text);
    }
    if (!piece->end) continue;
    answer.outcome = *piece->end;
    break;
  }
  if (answer.outcome.error) throw *answer.outcome.error;
  return answer;
}

void print_now(std::string_view text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

std::string describe(const Outcome& o) {
  const int64_t forwarded = o.prompt_tokens - o.cached_tokens;
  return fmt::format(
      "prompt {} tokens ({} cached), {:.1f} tok/s | answer {} tokens, {:.1f} tok/s | "
      "first token after {:.2f} s",
      o.prompt_tokens, o.cached_tokens, rate(forwarded, o.timings.prefill), o.completion_tokens,
      rate(o.completion_tokens - 1, o.timings.decode), o.timings.queue + o.timings.prefill);
}

}  // namespace mantou::cli
