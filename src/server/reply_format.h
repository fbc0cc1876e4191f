// How one protocol writes down what generations say. One object an answer, which may have several
// choices; used by its sinks on the engine thread. A protocol is one implementation, beside its
// endpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generation.h"
#include "server/api_error.h"
#include "server/json_fields.h"
#include "text/formats/output_parser.h"
#include "text/tokenizer.h"

namespace mantou::server {

// A generated token as logprobs report it; `bytes` may be a part of a character.
struct ReportedToken {
  struct Choice {
    TokenId id = 0;
    std::string bytes;
    std::optional<float> logprob;  // nothing stands before the first token of a prompt
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

// How the text of an answer ended, which an Outcome does not say.
struct TextEnd {
  bool at_limit = false;      // of tokens; not by the model's or a stop's will
  bool context_full = false;  // that limit was not the request's own
  std::string stop;           // the stop text that ended it; empty: none did
};

// One of the answers to a request, as it grows.
struct ChoiceState {
  struct Call {
    std::string id, name, arguments;  // arguments: JSON text
    bool complete = false;
  };
  // A stretch of one kind, in the order of writing.
  struct Part {
    text::OutputEvent::Kind kind;  // kContent, kReasoning or kCallBegin
    size_t begin, size;            // bytes of `content` or `reasoning`; begin: index of the call
  };
  int index = 0;
  std::string content, reasoning;
  std::vector<Call> calls;
  std::vector<Part> parts;
  std::vector<ReportedToken> tokens;  // with logprobs or token_ids only
  std::string_view finish;            // "stop", "length" or "tool_calls", at the end
  TextEnd end;
  Outcome outcome;  // at the end
};

class ReplyFormat {
 public:
  virtual ~ReplyFormat() = default;

  // Whose shape errors take before the first events.
  virtual Protocol protocol() const { return Protocol::kOpenAi; }

  // The first choice was admitted. Comes before anything is written.
  virtual void admitted(const Admission&) {}

  // Streams: whole events. A delta is what came since the one before, already part of `choice`.
  virtual std::string first_events(int choices) = 0;
  // Shows that the server is alive while it reads the prompt.
  virtual std::string progress_events(int64_t done, int64_t total);
  virtual std::string delta_events(const ChoiceState& choice,
                                   std::span<const text::OutputEvent> delta,
                                   std::span<const ReportedToken> tokens) = 0;
  // `all` sums up the outcomes, with the last choice to end; null before.
  virtual std::string choice_end_events(const ChoiceState& choice, const Outcome* all) = 0;
  virtual std::string last_events(std::span<const ChoiceState> choices, const Outcome& outcome) = 0;

  // The whole answer as one JSON.
  virtual std::string reply(std::span<const ChoiceState> choices, const Outcome& outcome) = 0;

  // An error behind the first events of a stream.
  virtual std::string error_events(const Error& error) = 0;
};

// Shared by the formats.
std::string random_id(std::string_view prefix);  // prefix and 24 hex digits
Json usage_json(const Outcome& outcome);
Json timings_json(const Outcome& outcome);          // llama-server's object
Json finite_logprob(std::optional<float> logprob);  // JSON has no -infinity: -9999, as OpenAI does
Json bytes_json(std::string_view bytes);            // [104, 105]
// Chat's and llama-server's form; mlx-lm's `id` stands beside OpenAI's members.
Json logprob_list(std::span<const ReportedToken> tokens);

}  // namespace mantou::server
