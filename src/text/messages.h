// OpenAI chat messages, checked and brought into the one form that templates know. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace mantou::text {

// Developer becomes system, text parts become one string, the arguments of tool calls become
// objects, fields that are null go, reasoning is found under each of its names. Errors are
// kInvalidArgument (kUnsupported for parts that are not text) with a param like
// "messages[2].content[0].type".
nlohmann::ordered_json normalize_messages(const nlohmann::ordered_json& messages);

// Values are walked recursively, here and in what renders them; deeper ones are refused.
inline constexpr int kMaxJsonDepth = 100;
void require_depth(const nlohmann::ordered_json& value, const std::string& name);

}  // namespace mantou::text
