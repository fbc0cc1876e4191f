// Everything a checkpoint says about its tokenizer and chat template, as plain values.
// `hub/` fills it, `text/` builds from it; neither includes the other.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mantou {

struct GgufVocabulary {
  std::string model;  // tokenizer.ggml.model: "gpt2", "llama"
  std::string pre;    // tokenizer.ggml.pre: "qwen2", "smollm", "default", …
  std::vector<std::string> tokens;
  std::vector<float> scores;  // empty, or one per token
  // Empty, or one per token: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
  std::vector<int32_t> types;
  std::vector<std::string> merges;
  bool add_space_prefix = true;
};

struct TokenizerSource {
  std::string origin;                  // file or directory, for messages
  std::string tokenizer_origin;        // the path of tokenizer.json, for messages; empty: origin
  std::string tokenizer_json;          // the bytes of tokenizer.json, or empty
  std::optional<GgufVocabulary> gguf;  // exactly one of the two is present

  std::optional<bool> add_bos, add_eos;  // what the checkpoint says; unset: what the tokenizer does
  std::string bos_token, eos_token, unk_token, pad_token;  // texts, for templates; may be empty
  int64_t bos_id = -1, eos_id = -1;                        // GGUF only
  // Ids that end a generation, from every place a checkpoint names them.
  std::vector<int32_t> end_ids;
  // Also at the tokens whose texts are known to end a turn, where the checkpoint forgot to say so.
  bool ends_by_text = true;

  std::string chat_template;                           // the default template; empty: none
  std::map<std::string, std::string> named_templates;  // "tool_use", "rag", …
};

}  // namespace mantou
