// Spaces around a text, in the sense of Python's str.strip(), which is what chat templates mean by
// them. Pure functions; any thread.
#pragma once

#include <string_view>

namespace mantou::text {

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
inline std::string_view strip(std::string_view text) { return strip_left(strip_right(text)); }

}  // namespace mantou::text
