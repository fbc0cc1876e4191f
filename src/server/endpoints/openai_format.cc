#include "server/endpoints/openai_format.h"

#include <utility>

#include "base/json.h"
#include "server/sse.h"

namespace mantou::server {

OpenAiFormat::OpenAiFormat(ReplyHead head, std::string_view reply_object,
                           std::string_view event_object)
    : head_(std::move(head)), reply_object_(reply_object), event_object_(event_object) {}

std::string OpenAiFormat::last_events(std::string_view finish, const Outcome& outcome) {
  Json last = frame(event_object_, Json::array({last_choice(finish)}));
  last["timings"] = timings_json(outcome);
  std::string events = event_of(std::move(last));
  if (head_.include_usage) {
    Json usage = frame(event_object_, Json::array());
    usage["usage"] = usage_json(outcome);
    events += sse_event(to_text(usage));
  }
  return events.append(kDoneEvent);
}

std::string OpenAiFormat::reply(std::string_view text, std::span<const ReportedToken> tokens,
                                std::string_view finish, const Outcome& outcome) {
  Json json = frame(reply_object_, Json::array({whole_choice(text, tokens, finish)}));
  json["usage"] = usage_json(outcome);
  json["timings"] = timings_json(outcome);
  return to_text(json);
}

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
