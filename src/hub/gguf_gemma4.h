// What Gemma 4's metadata says of its two kinds of layers, as config.json says it.
// Stateless; any thread.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "hub/gguf.h"

namespace mantou::hub {

// Keys that may hold a number for each layer; complete_gemma4 reads them.
inline constexpr std::array<std::string_view, 2> kGemma4LayerKeys = {"feed_forward_length",
                                                                     "attention.head_count_kv"};

void complete_gemma4(const GgufFile& file, nlohmann::json& config);

}  // namespace mantou::hub
