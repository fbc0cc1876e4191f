#include "cli/answer.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/mailbox.h"
#include "cli/interrupt.h"

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

double rate(int64_t tokens, double seconds) { return seconds > 0 ? double(tokens) / seconds : 0; }

}  // namespace

Outcome answer(Engine& engine, Request request, text::TextStream stream,
               const std::function<void(std::string_view)>& print, bool interruptible) {
  const auto mailbox = std::make_shared<Mailbox<Piece>>();
  const auto generation =
      engine.open(std::move(request), std::make_unique<TerminalSink>(std::move(stream), mailbox));
  std::optional<InterruptScope> scope;
  // Generation::cancel touches lock-free atomics only.
  if (interruptible)
    scope.emplace([](void* what) { static_cast<Generation*>(what)->cancel(); }, generation.get());
  for (;;) {
    const std::optional<Piece> piece = mailbox->pop();
    if (!piece->text.empty()) print(piece->text);
    if (piece->end) return *piece->end;
  }
}

AnswerStats stats_of(const Outcome& outcome) {
  const Timings& t = outcome.timings;
  return {outcome.prompt_tokens,
          outcome.cached_tokens,
          outcome.completion_tokens,
          t.queue + t.prefill,
          t.prefill,
          t.decode};
}

std::string describe(const AnswerStats& s) {
  std::string out;
  if (s.prompt_tokens) {
    const int64_t cached = s.cached_tokens.value_or(0);
    out = fmt::format("prompt {} tokens ({} cached), {:.1f} tok/s | ", *s.prompt_tokens, cached,
                      rate(*s.prompt_tokens - cached, s.prefill));
  }
  if (s.completion_tokens)
    out += fmt::format("answer {} tokens, {:.1f} tok/s | ", *s.completion_tokens,
                       rate(*s.completion_tokens - 1, s.decode));
  return out + fmt::format("first token after {:.2f} s", s.first_token);
}

}  // namespace mantou::cli
