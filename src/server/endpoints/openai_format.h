// What OpenAI's two protocols for texts have in common: the frame of their objects around choices,
// the events of a stream, usage and timings. A protocol adds its choices.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "server/reply_format.h"

namespace mantou::server {

class OpenAiFormat : public ReplyFormat {
 public:
  // The `object` of whole replies and of events.
  OpenAiFormat(ReplyHead head, std::string_view reply_object, std::string_view event_object);

  std::string choice_end_events(const ChoiceState& choice, const Outcome* all) final;
  std::string last_events(std::span<const ChoiceState> choices, const Outcome& outcome) final;
  std::string reply(std::span<const ChoiceState> choices, const Outcome& outcome) final;
  std::string error_events(const Error& error) final;

 protected:
  virtual Json whole_choice(const ChoiceState& choice) = 0;
  virtual Json last_choice(const ChoiceState& choice) = 0;  // of a stream
  std::string event(Json choice) const;

  const ReplyHead head_;

 private:
  Json frame(std::string_view object, Json choices) const;
  std::string event_of(Json json) const;

  const std::string_view reply_object_, event_object_;  // literals
};

}  // namespace mantou::server
