// The JSON side of an HF or MLX directory: configuration, names, tokenizer files.
//
// Pure functions over parsed JSON (for tests and fuzzing), and the one that reads the files. Errors
// name file and key. Any thread.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/tokenizer_source.h"

namespace mantou::hub {

// `text_config` lifted to the top: its values win, null values do not. The whole stays as it is
// when there is no text_config.
nlohmann::json lift_text_config(nlohmann::json config, const std::string& origin);

// transformers 5 writes `rope_parameters`, flat or one object a layer type; this fills in
// rope_theta, rope_scaling, partial_rotary_factor and rope_local_base_freq from it, over what the
// configuration says elsewhere.
void expand_rope_parameters(nlohmann::json& config, const std::string& origin);

// A tensor's or module's name without "model.", "language_model.model.", "model.language_model." or
// "language_model.".
std::string logical_name(std::string_view name);

// `vocab_size`, or what token ids can hold where it is absent.
int64_t vocabulary_size(const nlohmann::json& config, const std::string& origin);

// Appends the ids of `eos_token_id` (a number or an array, below `vocabulary`) that are not there
// yet.
void add_end_ids(const nlohmann::json& config, const std::string& origin, int64_t vocabulary,
                 std::vector<int32_t>& end_ids);

// Token texts, add_bos_token, add_eos_token and chat templates of a tokenizer_config.json.
void read_tokenizer_config(const nlohmann::json& config, const std::string& origin,
                           TokenizerSource& source);

// tokenizer.json, tokenizer_config.json and the chat template files, which win over it. Leaves
// tokenizer_json empty when the directory has none.
TokenizerSource directory_tokenizer(const std::filesystem::path& directory);

}  // namespace mantou::hub
