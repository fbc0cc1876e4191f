// What a chat may change about sampling and limits while it runs: the flags of those groups, under
// the names that requests have ("top_p"). Names, ranges and texts are those of the flags table.
// Plain values; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cli/options.h"

namespace mantou::cli {

struct ChatSettings {
  SamplingOptions sampling;
  LimitOptions limits;
};

// What was given, {"temperature": 0.5, …}: fields of a request, and of a saved conversation.
nlohmann::ordered_json to_json(const ChatSettings& settings);

// Errors name what is wrong: an unknown name, with the nearest; a value out of its range.
void set(ChatSettings& settings, std::string_view name, std::string_view value);
// As it is in `from`.
void reset(ChatSettings& settings, std::string_view name, const ChatSettings& from);

// What to_json() made, or a part of it.
ChatSettings settings_from_json(const nlohmann::ordered_json& json);

// A line a setting: its value, or what it is when nobody says.
std::string show(const ChatSettings& settings);

}  // namespace mantou::cli
