#include "server/completion_sink.h"

#include <ctime>
#include <deque>
#include <string>
#include <utility>

#include "base/log.h"
#include "server/api_error.h"
#include "server/sse.h"
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

class CompletionSink final : public Sink {
 public:
  CompletionSink(const Services& services, std::string request_id,
                 std::shared_ptr<Responder> responder, const GenerationFields& fields,
                 std::unique_ptr<ReplyFormat> format)
      : request_id_(std::move(request_id)),
        responder_(std::move(responder)),
        format_(std::move(format)),
        tokenizer_(services.tokenizer),
        text_(services.tokenizer, fields.stop),
        stream_(fields.stream),
        logprobs_(fields.sampling.logprobs) {}

  bool on_admitted(const Admission&) override {
    admitted_ = true;
    if (!stream_) return true;
    return responder_->begin_stream(kEventStream) && responder_->write(format_->first_events());
  }

  void on_progress(int64_t done, int64_t total) override {
    if (stream_ && done < total)
      responder_->write(sse_comment(fmt::format("keepalive {}/{}", done, total)));
  }

  Flow on_token(uint64_t, const GeneratedToken& token) override {
    const std::string text = text_.push(token.id);
    if (logprobs_)
      reports_.push(report(*tokenizer_, token),
                    tokenizer_->is_special(token.id) ? 0 : tokenizer_->bytes_of(token.id).size());
    const bool wanted = say(text, reports_.advance(text.size())) && !text_.stopped();
    return wanted ? Flow::kMore : Flow::kStop;
  }

  void on_done(const Outcome& outcome) override {
    log(outcome);
    if (outcome.reason == FinishReason::kError) return fail_with(*outcome.error);
    if (outcome.reason == FinishReason::kCancelled)
      return fail_with(Error(ErrorCode::kUnavailable, "the generation was cancelled"));
    if (!text_.stopped()) say(text_.finish(), reports_.rest());
    const bool length = outcome.reason == FinishReason::kLength && !text_.stopped();
    const std::string_view finish = length ? "length" : "stop";
    if (stream_) {
      responder_->write(format_->last_events(finish, outcome));
      responder_->finish();
    } else {
      responder_->send({200, format_->reply(said_, reported_, finish, outcome)});
    }
  }

 private:
  bool say(std::string_view text, std::vector<ReportedToken> tokens) {
    if (text.empty() && tokens.empty()) return true;
    if (stream_) return responder_->write(format_->delta_events(text, tokens));
    said_ += text;
    std::move(tokens.begin(), tokens.end(), std::back_inserter(reported_));
    return true;
  }

  void fail_with(const Error& error) {
    if (responder_->started()) {
      responder_->write(sse_event(error_json(error)));
      responder_->finish_and_close();
    } else if (!admitted_ && error.code() == ErrorCode::kResourceExhausted) {
      responder_->send(admission_error(error));
    } else {
      responder_->send(error_response(error));
    }
  }

  void log(const Outcome& outcome) const {
    constexpr std::string_view kReasons[] = {"stop", "length", "cancelled", "error"};
    const Timings& t = outcome.timings;
    log_info("generation", {{"id", request_id_},
                            {"reason", kReasons[size_t(outcome.reason)]},
                            {"prompt", outcome.prompt_tokens},
                            {"cached", outcome.cached_tokens},
                            {"tokens", outcome.completion_tokens},
                            {"queue_ms", fmt::format("{:.1f}", t.queue * 1e3)},
                            {"prefill_ms", fmt::format("{:.1f}", t.prefill * 1e3)},
                            {"decode_ms", fmt::format("{:.1f}", t.decode * 1e3)}});
    if (outcome.error)
      log_warn("generation failed", {{"id", request_id_}, {"error", outcome.error->message()}});
  }

  const std::string request_id_;
  const std::shared_ptr<Responder> responder_;
  const std::unique_ptr<ReplyFormat> format_;
  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  text::TextStream text_;
  const bool stream_, logprobs_;
  bool admitted_ = false;
  TokenReports reports_;
  std::string said_;                     // whole replies only
  std::vector<ReportedToken> reported_;  // whole replies only
};

}  // namespace

void start_generation(const Services& services, const HttpRequest& http,
                      const std::shared_ptr<Responder>& responder, std::vector<TokenId> prompt,
                      const char* prompt_field, GenerationFields fields,
                      std::unique_ptr<ReplyFormat> format) {
  const Capabilities& can = services.engine.capabilities();
  if (prompt.empty())
    fail_param(ErrorCode::kInvalidArgument, prompt_field, "'{}' holds no token", prompt_field);
  if (int64_t(prompt.size()) >= can.context)
    return responder->send(context_length_error(prompt_field, int64_t(prompt.size()), can.context));

  auto sink =
      std::make_unique<CompletionSink>(services, http.id, responder, fields, std::move(format));
  Request request{0, std::move(prompt), std::move(fields.limits), std::move(fields.sampling),
                  std::move(fields.cache)};
  const std::weak_ptr<Generation> generation =
      services.engine.open(std::move(request), std::move(sink));
  responder->on_gone([generation] {
    if (const auto running = generation.lock()) running->cancel();
  });
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
