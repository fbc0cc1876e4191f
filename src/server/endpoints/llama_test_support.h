// For tests of llama-server's routes: names that its own replies (build 11434) have.
#pragma once

#include <string>
#include <vector>

#include "server/server_test_support.h"

namespace mantou::server {

inline std::vector<std::string> keys_of(const json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

// Of the settings of a generation in /props and /slots.
inline const std::vector<std::string> kParamKeys = {"seed",
                                                    "temperature",
                                                    "dynatemp_range",
                                                    "dynatemp_exponent",
                                                    "top_k",
                                                    "top_p",
                                                    "min_p",
                                                    "top_n_sigma",
                                                    "xtc_probability",
                                                    "xtc_threshold",
                                                    "typical_p",
                                                    "repeat_last_n",
                                                    "repeat_penalty",
                                                    "presence_penalty",
                                                    "frequency_penalty",
                                                    "dry_multiplier",
                                                    "dry_base",
                                                    "dry_allowed_length",
                                                    "dry_penalty_last_n",
                                                    "mirostat",
                                                    "mirostat_tau",
                                                    "mirostat_eta",
                                                    "adaptive_target",
                                                    "adaptive_decay",
                                                    "max_tokens",
                                                    "n_predict",
                                                    "n_keep",
                                                    "n_discard",
                                                    "ignore_eos",
                                                    "stream",
                                                    "n_probs",
                                                    "min_keep",
                                                    "chat_format",
                                                    "reasoning_format",
                                                    "reasoning_in_content",
                                                    "generation_prompt",
                                                    "samplers",
                                                    "speculative.types",
                                                    "timings_per_token",
                                                    "post_sampling_probs",
                                                    "backend_sampling",
                                                    "lora"};

inline json prompt_body(const json& more = json::object()) {
  json body = {{"prompt", "Hi"}};
  body.update(more);
  return body;
}

}  // namespace mantou::server
