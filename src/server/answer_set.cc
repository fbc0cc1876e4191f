#include "server/answer_set.h"

#include <algorithm>
#include <utility>

#include "server/api_error.h"
#include "server/sse.h"

namespace mantou::server {

using Kind = text::OutputEvent::Kind;

namespace {

// Adds to the part that is being written, or begins one.
void write_part(ChoiceState& choice, Kind kind, std::string& text, std::string_view more) {
  if (choice.parts.empty() || choice.parts.back().kind != kind)
    choice.parts.push_back({kind, text.size(), 0});
  choice.parts.back().size += more.size();
  text += more;
}

}  // namespace

AnswerSet::AnswerSet(std::string request_id, std::shared_ptr<Responder> responder,
                     std::unique_ptr<ReplyFormat> format, const Shape& shape)
    : responder_(std::move(responder)),
      format_(std::move(format)),
      error_shape_{format_->protocol(), std::move(request_id)},
      shape_(shape),
      choices_(size_t(shape.prompts) * size_t(shape.choices)),
      left_(int(choices_.size())) {
  for (size_t i = 0; i < choices_.size(); i++) choices_[i].index = int(i);
}

bool AnswerSet::begin(const Admission& admission) {
  if (failed_) return false;
  if (std::exchange(begun_, true)) return true;
  format_->admitted(admission);
  if (!shape_.stream) return true;
  return responder_->begin_stream(kEventStream) &&
         responder_->write(format_->first_events(int(choices_.size())));
}

void AnswerSet::progress(int64_t done, int64_t total) {
  if (shape_.stream && done < total) responder_->write(format_->progress_events(done, total));
}

bool AnswerSet::add(int index, std::span<const text::OutputEvent> events,
                    std::vector<ReportedToken> tokens) {
  if (failed_) return false;
  if (events.empty() && tokens.empty()) return true;
  ChoiceState& choice = choices_[size_t(index)];
  take(choice, events);
  if (shape_.stream) return responder_->write(format_->delta_events(choice, events, tokens));
  std::move(tokens.begin(), tokens.end(), std::back_inserter(choice.tokens));
  return true;
}

void AnswerSet::take(ChoiceState& choice, std::span<const text::OutputEvent> events) {
  for (const text::OutputEvent& event : events) switch (event.kind) {
      case Kind::kContent:
        write_part(choice, event.kind, choice.content, event.text);
        break;
      case Kind::kReasoning:
        write_part(choice, event.kind, choice.reasoning, event.text);
        break;
      case Kind::kCallBegin:
        choice.parts.push_back({event.kind, choice.calls.size(), 0});
        choice.calls.push_back({random_id("call_"), event.text, "", false});
        break;
      case Kind::kCallArguments:
        choice.calls.back().arguments += event.text;
        break;
      case Kind::kCallEnd:
        choice.calls.back().complete = true;
        break;
    }
}

void AnswerSet::end(int index, TextEnd how, const Outcome& outcome) {
  left_--;
  if (failed_) return;
  if (outcome.reason == FinishReason::kError) return fail_with(*outcome.error);
  if (outcome.reason == FinishReason::kCancelled)
    return fail_with(Error(ErrorCode::kUnavailable, outcome.cancel == CancelReason::kShutdown
                                                        ? "the server is shutting down"
                                                        : "the generation was cancelled"));
  ChoiceState& choice = choices_[size_t(index)];
  const bool called = std::any_of(choice.calls.begin(), choice.calls.end(),
                                  [](const auto& call) { return call.complete; });
  choice.finish = how.at_limit ? "length" : called ? "tool_calls" : "stop";
  choice.end = std::move(how);
  choice.outcome = outcome;
  sum_up(index, outcome);
  if (shape_.stream)
    responder_->write(format_->choice_end_events(choice, left_ == 0 ? &*sum_ : nullptr));
  if (left_ == 0) close();
}

// A prompt counts once, however many choices continue it.
void AnswerSet::sum_up(int index, const Outcome& outcome) {
  if (!sum_) {
    sum_ = outcome;
    sum_->prompt_tokens = sum_->cached_tokens = 0;
  } else {
    sum_->completion_tokens += outcome.completion_tokens;
    sum_->timings.queue = std::max(sum_->timings.queue, outcome.timings.queue);
    sum_->timings.prefill = std::max(sum_->timings.prefill, outcome.timings.prefill);
    sum_->timings.decode = std::max(sum_->timings.decode, outcome.timings.decode);
  }
  if (index % shape_.choices != 0) return;
  sum_->prompt_tokens += outcome.prompt_tokens;
  sum_->cached_tokens += outcome.cached_tokens;
}

void AnswerSet::close() {
  if (!shape_.stream) return responder_->send({200, format_->reply(choices_, *sum_)});
  responder_->write(format_->last_events(choices_, *sum_));
  responder_->finish();
}

void AnswerSet::fail_with(const Error& error) {
  failed_ = true;
  if (responder_->started()) {
    responder_->write(format_->error_events(error));
    responder_->finish_and_close();
  } else if (!begun_ && error.code() == ErrorCode::kResourceExhausted) {
    responder_->send(admission_error(error, error_shape_));
  } else {
    responder_->send(error_response(error, error_shape_));
  }
}

}  // namespace mantou::server
