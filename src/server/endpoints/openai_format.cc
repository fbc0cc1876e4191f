#include "server/endpoints/openai_format.h"

#include <utility>

#include "base/json.h"
#include "server/api_error.h"
#include "server/sse.h"

namespace mantou::server {

OpenAiFormat::OpenAiFormat(ReplyHead head, std::string_view reply_object,
                           std::string_view event_object)
    : head_(std::move(head)), reply_object_(reply_object), event_object_(event_object) {}

std::string OpenAiFormat::choice_end_events(const ChoiceState& choice, const Outcome* all) {
  Json last = frame(event_object_, Json::array({last_choice(choice)}));
  if (all) last["timings"] = timings_json(*all);
  return event_of(std::move(last));
}

std::string OpenAiFormat::last_events(std::span<const ChoiceState>, const Outcome& outcome) {
  if (!head_.include_usage) return std::string(kDoneEvent);
  Json usage = frame(event_object_, Json::array());
  usage["usage"] = usage_json(outcome);
  return sse_event(to_text(usage)).append(kDoneEvent);
}

std::string OpenAiFormat::reply(std::span<const ChoiceState> choices, const Outcome& outcome) {
  Json all = Json::array();
  for (const ChoiceState& choice : choices) all.push_back(whole_choice(choice));
  Json json = frame(reply_object_, std::move(all));
  json["usage"] = usage_json(outcome);
  json["timings"] = timings_json(outcome);
  return to_text(json);
}

std::string OpenAiFormat::error_events(const Error& error) { return sse_event(error_json(error)); }

std::string OpenAiFormat::event(Json choice) const {
  return event_of(frame(event_object_, Json::array({std::move(choice)})));
}

std::string OpenAiFormat::event_of(Json json) const {
  if (head_.include_usage) json["usage"] = nullptr;
  return sse_event(to_text(json));
}

Json OpenAiFormat::frame(std::string_view object, Json choices) const {
  return {{"id", head_.id},
          {"object", object},
          {"created", head_.created},
          {"model", head_.model},
          {"system_fingerprint", head_.fingerprint},
          {"choices", std::move(choices)}};
}

}  // namespace mantou::server
