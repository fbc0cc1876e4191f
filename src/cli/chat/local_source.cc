#include "cli/chat/local_source.h"

#include <utility>

#include "base/error.h"
#include "cli/chat/reply_writer.h"
#include "cli/chat/session.h"

namespace mantou::cli {

LocalSource::LocalSource(const Options& options, LoadedModel& model, bool interruptible)
    : model_(model),
      chat_(chat_options(options.prompt)),
      interruptible_(interruptible),
      engine_(std::move(model.executor), {1, {schedule_of(model, options.model)}}) {
  format_.reasoning = reasoning_format(options.prompt, model.output_format.reasoning);
  for (const std::string_view marker : text::format_markers(format_))
    if (const TokenId id = model.tokenizer->id_of(marker); id >= 0) shown_.push_back(id);
}

void LocalSource::check_room(const Request& request) const {
  if (int64_t(request.prompt.size()) >= context())
    fail(ErrorCode::kResourceExhausted,
         "the conversation has {} tokens with this message, the context holds {}: {}",
         request.prompt.size(), context(), kWaysOut);
}

Reply LocalSource::answer(const Question& question, const ShowPiece& show) {
  const text::ChatPrompt prompt = model_.chat_template->render(question.messages, chat_);
  Request request = make_request(model_, question.settings.sampling, question.settings.limits);
  if (question.seed) request.sampling.seed = *question.seed;
  request.prompt = prompt.ids;
  check_room(request);

  Reply reply;
  ReplyWriter writer(reply, show, format_,
                     text::begins_in_reasoning(format_, prompt.text, /*continues=*/false));
  const Outcome outcome = cli::answer(
      engine_, std::move(request),
      text::TextStream(model_.tokenizer, question.settings.limits.stop, shown_),
      [&](std::string_view text) { writer.push(text); }, interruptible_);
  writer.finish();
  reply.stats = stats_of(outcome);
  reply.error = outcome.error;
  if (outcome.reason == FinishReason::kLength) reply.end = Reply::End::kLength;
  if (outcome.reason == FinishReason::kCancelled) reply.end = Reply::End::kInterrupted;
  return reply;
}

}  // namespace mantou::cli
