// llama-server's own shapes: the reply of /completion, whole or streamed, and the settings of a
// generation as it names them. One LlamaFormat an answer, as ReplyFormat says.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/endpoints/llama_fields.h"
#include "server/reply_format.h"

namespace mantou::server {

// The settings of a generation that are numbers and switches. Samplers that do not exist here have
// the values by which llama-server turns them off.
Json llama_settings(const SamplingParams& sampling, const Limits& limits);

class LlamaFormat final : public ReplyFormat {
 public:
  LlamaFormat(const LlamaRequest& request, std::string model, std::string prompt_text);

  Protocol protocol() const override { return Protocol::kLlama; }
  void admitted(const Admission& admission) override;
  std::string first_events(int choices) override;
  std::string progress_events(int64_t done, int64_t total) override;
  std::string delta_events(const ChoiceState& choice, std::span<const text::OutputEvent> delta,
                           std::span<const ReportedToken> tokens) override;
  std::string choice_end_events(const ChoiceState& choice, const Outcome* all) override;
  std::string last_events(std::span<const ChoiceState>, const Outcome&) override { return {}; }
  std::string reply(std::span<const ChoiceState> choices, const Outcome& outcome) override;
  std::string error_events(const Error& error) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Progress {
    int64_t tokens = 0;
    Clock::time_point first;  // token
  };

  Json part(int index, std::string_view content, Json tokens, int64_t predicted) const;
  Json final_json(const ChoiceState& choice) const;
  Json timings_now(const Progress& progress) const;

  const bool stream_, probs_, return_tokens_, return_progress_, timings_per_token_;
  const int64_t prompt_tokens_;
  const std::vector<std::string> response_fields_;
  const std::string model_, prompt_text_;
  const Json settings_;
  int64_t cached_tokens_ = 0;
  Clock::time_point admitted_;
  std::vector<Progress> progress_;  // of each choice of a stream
};

}  // namespace mantou::server
