// The fields of llama-server's own protocol, where they differ from what every way to ask for text
// shares. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/generation_fields.h"
#include "server/services.h"

namespace mantou::server {

inline constexpr size_t kMaxResponseFields = 64;
inline constexpr double kMaxLlamaBias = 10'000;  // of its logit_bias, either way

// A text, an array of token ids, or an array that mixes both, as token ids; of texts only the
// beginning gets the model's special tokens. Errors name `name`.
std::vector<TokenId> read_tokens(const Json& value, const std::string& name,
                                 const text::Tokenizer& tokenizer,
                                 const text::Tokenizer::EncodeOptions& options);

// POST /completion.
struct LlamaRequest {
  std::vector<TokenId> prompt;
  GenerationFields generation;
  int n_probs = 0;
  bool return_tokens = false, return_progress = false, timings_per_token = false;
  std::vector<std::string> response_fields;  // "timings/prompt_n"; none: all
};

// Defaults are the server's. What llama-server can do and nothing here can is refused by name.
LlamaRequest parse_llama_request(std::string_view body, const RequestDefaults& defaults,
                                 const text::Tokenizer& tokenizer);

}  // namespace mantou::server
