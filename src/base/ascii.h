// Letters of ASCII whatever the locale; all other bytes stay as they are. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace mantou {

constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; }

inline std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = lower(c);
  return out;
}

// Whether `part` stands in `text`, in letters of any case.
inline bool contains_in_any_case(std::string_view text, std::string_view part) {
  return lower(text).find(lower(part)) != std::string::npos;
}

}  // namespace mantou
