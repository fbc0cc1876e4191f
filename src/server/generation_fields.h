// The fields that every way to ask for text shares: sampling, limits, stops, streaming; and the
// JSON bodies of the OpenAI endpoints as plain values. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/grammar_fields.h"
#include "server/json_fields.h"
#include "server/services.h"
#include "text/chat_template.h"

namespace mantou::server {

inline constexpr size_t kMaxStops = 16, kMaxStopTokens = 256;
inline constexpr int kMaxChoices = 128, kMaxPrompts = 1024;
inline constexpr int kMaxAnswers = 1024;  // of one request: choices of all its prompts
inline constexpr double kMaxBias = 100;   // of logit_bias, either way

struct GenerationFields {
  SamplingParams sampling;
  Limits limits;
  CacheHints cache;
  std::vector<std::string> stop;
  int choices = 1;                     // n
  bool echo = false;                   // the answer begins with the prompt
  std::optional<PromptScores> scores;  // of an echoed prompt
  bool one_call = false;               // of a tool: the answer ends behind it
  std::optional<GrammarField> grammar;
  bool stream = false;
  bool include_usage = false;
  bool token_ids = false;  // every token is reported, without logprobs, too
};

// Reads them all over `defaults`; an answer's limit must be at least `least_tokens`. Errors
// (kInvalidArgument, kUnsupported) name the field. `logprobs` is not read here: the endpoints spell
// it differently.
GenerationFields read_generation_fields(const Fields& fields, const RequestDefaults& defaults,
                                        int vocab_size, int least_tokens = 1);

// The field `messages`: an array of at least one object, each with a role.
const Json& read_messages(const Fields& fields);

// POST /v1/chat/completions, and what other protocols make of theirs.
struct ChatRequest {
  Json messages;  // an array, not empty; the chat template checks the messages themselves
  text::ChatOptions chat;
  bool must_call = false;   // a tool
  Json callable_tools;      // null: all of chat.tools
  bool maps_roles = false;  // role_mapping: mlx-lm's way to write chats without a template
  GenerationFields generation;
};
ChatRequest parse_chat_request(std::string_view body, const RequestDefaults& defaults,
                               int vocab_size);

// POST /v1/completions.
struct CompletionRequest {
  struct Prompt {
    std::string field;  // "prompt[2]"
    std::string text;
    std::vector<TokenId> ids;  // empty: `text` is to be tokenized
  };
  std::vector<Prompt> prompts;
  GenerationFields generation;
  bool logprob_list = false;  // mlx-lm's form of logprobs
};
CompletionRequest parse_completion_request(std::string_view body, const RequestDefaults& defaults,
                                           int vocab_size);

}  // namespace mantou::server
