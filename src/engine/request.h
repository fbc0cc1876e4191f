// Requests and their parts as plain values: the vocabulary shared by server, engine, sampling and
// models. Copied freely, never mutated after a request was submitted. No tensors here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/token.h"

namespace mantou {

namespace text {
class Grammar;
}

using RequestId = uint64_t;

// What every door (command line, server, generation_config.json) accepts; the formulas of the
// sampler would take more.
inline constexpr double kMaxTemperature = 5;
inline constexpr double kMaxRepetitionPenalty = 10;
inline constexpr double kMaxPenalty = 2;  // presence and frequency; the lowest is its negative
inline constexpr double kMaxXtcThreshold = 0.5;
inline constexpr int kMaxTopLogprobs = 20;

// How a row's next token is chosen; docs/sampling.md gives order and formulas.
struct SamplingParams {
  double temperature = 0.7;  // 0: arg-max, ties to the lowest id
  double top_p = 0;          // in (0, 1): nucleus; 0 or 1: off
  int top_k = 0;             // 0: off
  double min_p = 0;          // in (0, 1]; 0: off
  int min_tokens_to_keep = 1;
  double xtc_probability = 0, xtc_threshold = 0;
  std::vector<TokenId> xtc_special;  // never removed by XTC
  double repetition_penalty = 0;     // 0 or 1: off
  int repetition_context = 20;       // 0: the whole history
  double presence_penalty = 0;
  int presence_context = 20;
  double frequency_penalty = 0;
  int frequency_context = 20;
  std::map<TokenId, float> logit_bias;
  uint64_t seed = 0;
  bool logprobs = false;
  int top_logprobs = 0;  // 0 … kMaxTopLogprobs
};

// The repetition penalty's window as llama-server spells it: -1 is the whole history, 0 turns the
// penalty off.
inline void set_repeat_last_n(SamplingParams& params, int window) {
  if (window == 0) params.repetition_penalty = 0;
  params.repetition_context = window < 0 ? 0 : window;
}

struct Limits {
  // -1: as many as the context holds; 0: the prompt is read, nothing is written.
  int max_tokens = -1;
  int min_tokens = 0;                   // end ids are masked until so many tokens were generated
  bool ignore_eos = false;              // end ids are ordinary tokens
  std::vector<TokenId> stop_token_ids;  // end the row like an end id; not part of the text
};

struct CacheHints {
  bool reuse = true;  // may start from the state of others
  bool keep = true;   // its own may serve others afterwards
};

// What the answer must be.
struct Constraint {
  std::shared_ptr<const text::Grammar> grammar;  // null: anything
  // The grammar holds from behind these tokens on (the end of reasoning); empty: from the start.
  std::vector<TokenId> begins_after;
};

// What the model would have said at each place of the prompt: the log-probabilities of its tokens
// from the second one on.
struct PromptScores {
  int top = 0;  // and of so many most probable tokens, 0 … kMaxTopLogprobs
};

struct Request {
  RequestId id = 0;
  std::vector<TokenId> prompt;  // at least one token
  Limits limits;
  SamplingParams sampling;
  CacheHints cache;
  Constraint constraint = {};
  std::optional<PromptScores> scores = {};
};

enum class FinishReason { kStop, kLength, kCancelled, kError };

struct TokenLogprob {
  TokenId id;
  float logprob;
};

// A committed token, or one of a prompt with scores, with what was asked about it.
struct GeneratedToken {
  TokenId id = 0;
  float logprob = 0;              // when logprobs were asked for
  std::vector<TokenLogprob> top;  // the top_logprobs best, best first
};

}  // namespace mantou
