// UTF-8 whole and as it arrives in pieces. Well-formed is what Unicode's table 3-7 says: no
// overlong forms, no surrogates, nothing above U+10FFFF. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mantou {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Bytes of the character that `bytes` begins with; 0 when it begins with none that is well-formed
// and complete.
size_t character_length(std::string_view bytes);

bool is_utf8(std::string_view bytes);

// Moves what is complete out of `pending`: well-formed characters as they are, each ill-formed
// sequence as one U+FFFD (the maximal subparts of Unicode 3.9). What may still become a character
// stays.
std::string take_characters(std::string& pending);

}  // namespace mantou
