#include "server/completion_sink.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <deque>
#include <string>
#include <utility>
#include <variant>

#include "base/log.h"
#include "server/answer_set.h"
#include "server/api_error.h"
#include "server/grammar_compiler.h"
#include "text/stop_matcher.h"

namespace mantou::server {
namespace {

// Tokens that wait for their text: a token is reported with the text that holds its first byte, and
// never when that text was cut off by a stop.
class TokenReports {
 public:
  void push(ReportedToken token, size_t text_bytes) {
    waiting_.push_back({std::move(token), text_bytes});
  }
  // Reports for the next `bytes` bytes of text.
  std::vector<ReportedToken> advance(size_t bytes) {
    sent_ += bytes;
    std::vector<ReportedToken> ready;
    while (!waiting_.empty() && (begin_ < sent_ || waiting_.front().bytes == 0)) pop_into(ready);
    return ready;
  }
  std::vector<ReportedToken> rest() {
    std::vector<ReportedToken> ready;
    while (!waiting_.empty()) pop_into(ready);
    return ready;
  }

 private:
  struct Waiting {
    ReportedToken token;
    size_t bytes;
  };
  void pop_into(std::vector<ReportedToken>& ready) {
    begin_ += waiting_.front().bytes;
    ready.push_back(std::move(waiting_.front().token));
    waiting_.pop_front();
  }
  std::deque<Waiting> waiting_;
  size_t begin_ = 0;  // where the text of waiting_.front() begins
  size_t sent_ = 0;   // bytes of text that left
};

// What is wrong with the grammar is wrong with the field that asked for it; other errors stay.
Error named(const Error& error, const std::string& field) {
  if (error.param() != "grammar") return error;
  return {error.code(), fmt::format("'{}': {}", field, error.message()), field};
}

// One choice of an answer.
class CompletionSink final : public Sink {
 public:
  CompletionSink(const Services& services, std::shared_ptr<AnswerSet> answers, int choice,
                 std::string request_id, const Prompt& prompt, const GenerationFields& fields)
      : answers_(std::move(answers)),
        choice_(choice),
        request_id_(std::move(request_id)),
        parser_(prompt.make_parser ? prompt.make_parser() : nullptr),
        tokenizer_(services.tokenizer),
        text_(services.tokenizer, fields.stop, shown_tokens(services, parser_ != nullptr)),
        reports_tokens_(fields.sampling.logprobs || fields.token_ids),
        one_call_(fields.one_call),
        echo_(fields.echo ? prompt.text : ""),
        first_(prompt.ids[0]),
        grammar_field_(fields.grammar ? fields.grammar->field : ""),
        max_tokens_(fields.limits.max_tokens) {}

  bool on_admitted(const Admission& admission) override {
    clamped_ = max_tokens_ < 0 || admission.max_tokens < max_tokens_;
    return answers_->begin(admission) && echo();
  }

  void on_scores(std::span<const GeneratedToken> scores) override {
    std::vector<ReportedToken> tokens;
    for (const GeneratedToken& score : scores) tokens.push_back(report(*tokenizer_, score));
    answers_->add(choice_, {}, std::move(tokens));
  }

  void on_progress(int64_t done, int64_t total) override { answers_->progress(done, total); }

  Flow on_token(uint64_t, const GeneratedToken& token) override {
    const std::string text = text_.push(token.id);
    if (reports_tokens_) reports_.push(report(*tokenizer_, token), text_.bytes_of(token.id));
    const bool heard = say(text, reports_.advance(text.size()));
    if (called_ || text_.stopped()) return Flow::kStop;
    return heard ? Flow::kMore : Flow::kClosed;
  }

  void on_done(const Outcome& outcome) override {
    if (!outcome.error || grammar_field_.empty()) return end(outcome);
    Outcome renamed = outcome;
    renamed.error = named(*outcome.error, grammar_field_);
    end(renamed);
  }

 private:
  void end(const Outcome& outcome) {
    log(outcome);
    if (outcome.reason == FinishReason::kStop || outcome.reason == FinishReason::kLength) {
      const bool stopped = text_.stopped();
      say(stopped ? "" : text_.finish(), stopped ? std::vector<ReportedToken>() : reports_.rest(),
          /*last=*/true);
    }
    const bool at_limit = outcome.reason == FinishReason::kLength && !text_.stopped();
    answers_->end(choice_, {at_limit, at_limit && clamped_, text_.stop()}, outcome);
  }

  // Special tokens that are markup of the parser's.
  static std::vector<TokenId> shown_tokens(const Services& services, bool parses) {
    std::vector<TokenId> ids;
    if (!parses) return ids;
    for (const std::string_view marker : text::format_markers(services.output_format))
      if (const TokenId id = services.tokenizer->id_of(marker); id >= 0) ids.push_back(id);
    return ids;
  }

  // False: nobody listens any more.
  bool say(std::string_view text, std::vector<ReportedToken> tokens, bool last = false) {
    if (called_) return true;
    std::vector<text::OutputEvent> events;
    if (!parser_) {
      if (!text.empty())
        events.push_back({text::OutputEvent::Kind::kContent, -1, std::string(text)});
    } else {
      parser_->push(text, events);
      if (last) parser_->finish(events);
    }
    called_ = one_call_ && cut_behind_call(events);
    return answers_->add(choice_, events, std::move(tokens));
  }

  // What follows the first call is not wanted.
  static bool cut_behind_call(std::vector<text::OutputEvent>& events) {
    const auto end = std::find_if(events.begin(), events.end(), [](const auto& event) {
      return event.kind == text::OutputEvent::Kind::kCallEnd;
    });
    if (end == events.end()) return false;
    events.erase(end + 1, events.end());
    return true;
  }

  bool echo() {
    if (echo_.empty()) return true;
    const text::OutputEvent event{text::OutputEvent::Kind::kContent, -1, echo_};
    std::vector<ReportedToken> tokens;
    if (reports_tokens_) {
      tokens.push_back(report(*tokenizer_, {first_, 0, {}}));
      tokens.back().chosen.logprob.reset();
    }
    return answers_->add(choice_, {&event, 1}, std::move(tokens));
  }

  void log(const Outcome& outcome) const {
    constexpr std::string_view kReasons[] = {"stop", "length", "cancelled", "error"};
    const Timings& t = outcome.timings;
    log_info("generation",
             {{"id", request_id_},
              {"choice", choice_},
              {"reason", outcome.is_refusal() ? "refused" : kReasons[size_t(outcome.reason)]},
              {"prompt", outcome.prompt_tokens},
              {"cached", outcome.cached_tokens},
              {"tokens", outcome.completion_tokens},
              {"queue_ms", fmt::format("{:.1f}", t.queue * 1e3)},
              {"prefill_ms", fmt::format("{:.1f}", t.prefill * 1e3)},
              {"decode_ms", fmt::format("{:.1f}", t.decode * 1e3)}});
    if (!outcome.error) return;
    const std::string& error = outcome.error->message();
    if (outcome.is_refusal())
      log_info("refused", {{"id", request_id_}, {"error", error}});
    else
      log_warn("generation failed", {{"id", request_id_}, {"error", error}});
  }

  const std::shared_ptr<AnswerSet> answers_;
  const int choice_;
  const std::string request_id_;
  const std::unique_ptr<text::OutputParser> parser_;
  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  text::TextStream text_;
  const bool reports_tokens_, one_call_;
  bool called_ = false;              // the one call is complete
  const std::string echo_;           // the prompt
  const TokenId first_;              // of it
  const std::string grammar_field_;  // of the request
  const int64_t max_tokens_;
  bool clamped_ = false;  // the context or the memory allows fewer tokens
  TokenReports reports_;
};

// Requests with the sinks of their answers, ready for the engine but for their grammar.
struct Opening {
  Engine& engine;  // there until the server has stopped, and closed its GrammarCompiler
  std::shared_ptr<Responder> responder;
  std::vector<Request> requests;
  std::vector<std::unique_ptr<Sink>> sinks;
};

void open(Opening& opening) {
  std::vector<std::weak_ptr<Generation>> generations;
  for (auto& generation :
       opening.engine.open(std::move(opening.requests), std::move(opening.sinks)))
    generations.push_back(generation);
  opening.responder->on_gone([generations] {
    for (const auto& each : generations)
      if (const auto running = each.lock()) running->cancel();
  });
}

// Opens when the grammar is there; until then nothing but the client's leaving can stop it.
void open_with_grammar(GrammarCompiler& compiler, const GrammarField& wanted, ErrorShape shape,
                       Opening ready) {
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  ready.responder->on_gone([gone] { *gone = true; });
  const auto opening = std::make_shared<Opening>(std::move(ready));
  auto done = [opening, shape = std::move(shape),
               field = wanted.field](const GrammarCompiler::Result& result) {
    answer_errors(opening->responder, shape, [&] {
      if (const Error* error = std::get_if<Error>(&result)) throw named(*error, field);
      for (Request& request : opening->requests)
        request.constraint.grammar = std::get<std::shared_ptr<const text::Grammar>>(result);
      open(*opening);
    });
  };
  compiler.compile({wanted.source, [gone] { return !*gone; }, std::move(done)});
}

}  // namespace

void start_generation(const Services& services, const HttpRequest& http,
                      const std::shared_ptr<Responder>& responder,
                      const std::vector<Prompt>& prompts, GenerationFields fields,
                      std::unique_ptr<ReplyFormat> format) {
  // An answer of no tokens leaves all the room to the prompt.
  const int64_t room = services.engine.longest_row();
  for (const Prompt& prompt : prompts) {
    const int64_t tokens = int64_t(prompt.ids.size());
    if (tokens == 0)
      fail_param(ErrorCode::kInvalidArgument, prompt.field, "'{}' holds no token", prompt.field);
    if (fields.limits.max_tokens == 0 ? tokens > room : tokens >= room)
      return responder->send(
          context_length_error({prompt.field, tokens, room, services.engine.capabilities().context},
                               {format->protocol(), http.id}));
  }
  ErrorShape error_shape{format->protocol(), http.id};
  const AnswerSet::Shape shape{int(prompts.size()), fields.choices, fields.stream};
  const auto answers = std::make_shared<AnswerSet>(http.id, responder, std::move(format), shape);
  Opening opening{services.engine, responder, {}, {}};
  for (const Prompt& prompt : prompts) {
    for (int i = 0; i < fields.choices; i++) {
      const int choice = int(opening.sinks.size());
      opening.sinks.push_back(
          std::make_unique<CompletionSink>(services, answers, choice, http.id, prompt, fields));
      opening.requests.push_back({0,
                                  prompt.ids,
                                  fields.limits,
                                  fields.sampling,
                                  fields.cache,
                                  {nullptr, prompt.grammar_begins_after},
                                  fields.scores});
      opening.requests.back().sampling.seed += uint64_t(i);
    }
  }
  if (!fields.grammar) return open(opening);
  open_with_grammar(*services.grammars, *fields.grammar, std::move(error_shape),
                    std::move(opening));
}

ReplyHead make_head(const Services& services, const GenerationFields& fields,
                    std::string_view id_prefix) {
  ReplyHead head;
  head.id = random_id(id_prefix);
  head.created = int64_t(std::time(nullptr));
  head.model = services.model_id;
  head.fingerprint = services.engine.capabilities().numerics_id;
  head.logprobs = fields.sampling.logprobs;
  head.top_logprobs = fields.sampling.top_logprobs;
  head.include_usage = fields.include_usage;
  return head;
}

}  // namespace mantou::server
