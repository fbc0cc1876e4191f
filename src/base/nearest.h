// Suggestions for misspelt names: flags, verbs, models, architectures. Any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace mantou {

// Levenshtein distance in bytes.
size_t edit_distance(std::string_view a, std::string_view b);

// The known name closest to `name`, or "" when none is within a third of its length (at least 2).
std::string nearest(std::string_view name, std::span<const std::string> known);

// "; did you mean X?" or "".
std::string did_you_mean(std::string_view name, std::span<const std::string> known);

}  // namespace mantou
