#include "cli/chat/remote_source.h"

#include <chrono>
#include <utility>
#include <vector>

#include "cli/chat/reply_writer.h"
#include "cli/interrupt.h"
#include "cli/load.h"

namespace mantou::cli {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

RemoteModel choose_model(RemoteClient& client, const std::string& wanted) {
  std::vector<RemoteModel> models;
  try {
    models = client.models();
  } catch (const Error& error) {
    // A server need not list its models when one is named; it must be there.
    if (wanted.empty() || error.code() == ErrorCode::kIo) throw;
    return {wanted};
  }
  std::vector<std::string> names;
  for (const RemoteModel& model : models) {
    if (model.id == wanted || (wanted.empty() && models.size() == 1)) return model;
    names.push_back(model.id);
  }
  if (!wanted.empty()) return {wanted};  // servers may know names that they do not list
  if (names.empty())
    fail_param(ErrorCode::kInvalidArgument, "--model", "{} lists no model: name one with --model",
               client.url());
  fail_param(ErrorCode::kInvalidArgument, "--model",
             "{} has {} models, choose one with --model: {}", client.url(), names.size(),
             fmt::join(names, ", "));
}

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

ordered_json chat_request(const Question& question, const std::string& model,
                          const std::string& chat_template_kwargs) {
  ordered_json body = {{"model", model},
                       {"messages", question.messages},
                       {"stream", true},
                       {"stream_options", {{"include_usage", true}}}};
  for (ordered_json& message : body["messages"]) message.erase("reasoning_content");
  body.update(to_json(question.settings));
  if (question.seed) body["seed"] = *question.seed;
  if (body.value("max_tokens", 0) < 0) body.erase("max_tokens");  // as many as there may be
  if (!chat_template_kwargs.empty())
    body["chat_template_kwargs"] = ordered_json::parse(chat_template_kwargs);
  return body;
}

RemoteSource::RemoteSource(RemoteClient client, const Options& options, bool interruptible)
    : client_(std::move(client)),
      prompt_(options.prompt),
      interruptible_(interruptible),
      model_(choose_model(client_, options.model.model)) {}

Reply RemoteSource::answer(const Question& question, const ShowPiece& show) {
  Reply reply;
  text::OutputFormat format;
  format.reasoning = reasoning_format(prompt_, "none");
  ReplyWriter writer(reply, show, format, /*in_reasoning=*/false);
  StopFlag stop;
  std::optional<InterruptScope> scope;
  if (interruptible_) scope.emplace([](void* what) { static_cast<StopFlag*>(what)->set(); }, &stop);

  const Clock::time_point start = Clock::now();
  std::optional<Clock::time_point> first;
  const RemoteEnd end = client_.chat(
      chat_request(question, model_.id, prompt_.chat_template_kwargs),
      [&](const RemoteDelta& delta) {
        if (!first) first = Clock::now();
        writer.reasoning(delta.reasoning);
        writer.push(delta.content);
      },
      stop);
  writer.finish();

  reply.error = end.error;
  if (end.finish_reason == "length") reply.end = Reply::End::kLength;
  if (end.stopped) reply.end = Reply::End::kInterrupted;
  const Clock::time_point last = Clock::now();
  reply.stats = {end.usage.prompt_tokens,
                 end.usage.cached_tokens,
                 end.usage.completion_tokens,
                 seconds(first.value_or(last) - start),
                 seconds(first.value_or(last) - start),
                 seconds(last - first.value_or(last))};
  return reply;
}

}  // namespace mantou::cli
