// How one protocol writes down what a generation says. One object an answer, used by its sink on
// the engine thread. A protocol is one implementation, beside its endpoint.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generation.h"
#include "server/json_fields.h"
#include "text/tokenizer.h"

namespace mantou::server {

// A generated token as logprobs report it; `bytes` may be a part of a character.
struct ReportedToken {
  struct Choice {
    std::string bytes;
    float logprob = 0;
  };
  Choice chosen;
  std::vector<Choice> top;
};

ReportedToken report(const text::Tokenizer& tokenizer, const GeneratedToken& token);

// What every object of an answer repeats.
struct ReplyHead {
  std::string id;  // "chatcmpl-…"
  int64_t created = 0;
  std::string model;
  std::string fingerprint;
  bool logprobs = false;
  int top_logprobs = 0;
  bool include_usage = false;
};

class ReplyFormat {
 public:
  virtual ~ReplyFormat() = default;
  // Streams: whole events. `finish` is "stop" or "length".
  virtual std::string first_events() = 0;
  virtual std::string delta_events(std::string_view text,
                                   std::span<const ReportedToken> tokens) = 0;
  virtual std::string last_events(std::string_view finish, const Outcome& outcome) = 0;
  // The whole answer as one JSON.
  virtual std::string reply(std::string_view text, std::span<const ReportedToken> tokens,
                            std::string_view finish, const Outcome& outcome) = 0;
};

// Shared by the OpenAI formats.
std::string random_id(std::string_view prefix);  // prefix and 24 hex digits
Json usage_json(const Outcome& outcome);
Json timings_json(const Outcome& outcome);  // llama-server's object
double finite_logprob(float logprob);       // JSON has no -infinity: -9999, as OpenAI does

}  // namespace mantou::server
