// Answers in the shape of Anthropic's Messages API: one message of content blocks, whole or as
// events. Blocks stand in the order in which they were written; each closes before the next opens.
// As every ReplyFormat.
#pragma once

#include <string>

#include "server/reply_format.h"

namespace mantou::server {

class AnthropicFormat final : public ReplyFormat {
 public:
  // `omits_thinking`: blocks of thinking come without their text.
  AnthropicFormat(ReplyHead head, std::string request_id, int64_t prompt_tokens,
                  bool omits_thinking);

  Protocol protocol() const override { return Protocol::kAnthropic; }
  void admitted(const Admission& admission) override;
  std::string first_events(int choices) override;
  std::string progress_events(int64_t done, int64_t total) override;
  std::string delta_events(const ChoiceState& choice, std::span<const text::OutputEvent> delta,
                           std::span<const ReportedToken> tokens) override;
  std::string choice_end_events(const ChoiceState& choice, const Outcome* all) override;
  std::string last_events(std::span<const ChoiceState> choices, const Outcome& outcome) override;
  std::string reply(std::span<const ChoiceState> choices, const Outcome& outcome) override;
  std::string error_events(const Error& error) override;

 private:
  using Kind = text::OutputEvent::Kind;

  Json message(Json content, Json stop_reason, Json stop_sequence, int64_t output_tokens) const;
  Json usage(int64_t output_tokens) const;
  Json thinking_block(std::string_view thinking) const;
  Json part_block(const ChoiceState& choice, const ChoiceState::Part& part) const;
  std::string open_block(Kind kind, Json block);
  std::string close_block();
  std::string block_delta(Json delta) const;

  const ReplyHead head_;
  const std::string request_id_;
  const int64_t prompt_tokens_;
  const bool omits_thinking_;
  int64_t cached_tokens_ = 0;

  // Of a stream.
  bool open_ = false;
  Kind kind_ = Kind::kContent;  // of the block that is open
  int blocks_ = 0;              // begun so far
  std::string thinking_;        // of the block that is open
};

// The beginning of a JSON object with what it leaves open closed, without the value that was being
// written when it broke off: {"a": 1, "b": "hal → {"a": 1}.
std::string closed_json(std::string_view beginning);

}  // namespace mantou::server
