// UTF-8 as it arrives in pieces. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

namespace mantou::text {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Moves what is complete out of `pending`: well-formed characters as they are, each ill-formed
// sequence as one U+FFFD (the maximal subparts of Unicode 3.9). What may still become a character
// stays.
std::string take_characters(std::string& pending);

// Spaces in the sense of Python's str.strip(), which is what chat templates mean by them.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
inline std::string_view strip(std::string_view text) { return strip_left(strip_right(text)); }

}  // namespace mantou::text
