// JSON as it comes: one value, byte by byte, to compact JSON text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mantou::text {

void append_json_char(char c, std::string& out);  // one byte of a string's inside, escaped
std::string json_quoted(std::string_view text);
std::optional<std::string> json_unquoted(std::string_view json);  // nullopt: no string

// Drops spaces between tokens and leaves tokens as they are written, numbers in particular. Strings
// are mended into valid ones: control characters and backslashes that escape nothing are escaped,
// halves of surrogate pairs become U+FFFD. Brackets must match and nest at most kMaxJsonDepth deep;
// commas, colons and what scalars spell are not checked: what came out so far could not be taken
// back, and whoever reads the arguments must check them anyhow.
class JsonScanner {
 public:
  enum class Step {
    kMore,
    kDone,        // `c` ends the value
    kDoneBefore,  // the value (a number or a word) ended before `c`
    kBroken,      // `c` cannot stand here
  };
  Step feed(char c, std::string& out);

 private:
  void string_byte(char c, std::string& out);
  void escape_byte(char c, std::string& out);
  void drop_half_pair(std::string& out);

  std::string open_;  // the open brackets
  bool in_string_ = false;
  bool in_scalar_ = false;  // the last token is a number or a word and may go on
  bool gap_ = false;        // spaces came after it
  std::string escape_;      // an escape sequence until it is complete
  std::string high_;        // the first half of a surrogate pair, as an escape sequence
};

// `text`, if it is one JSON value and nothing else, as JsonScanner writes it.
std::optional<std::string> json_compact(std::string_view text);

}  // namespace mantou::text
