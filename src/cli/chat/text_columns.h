// How text lies on a terminal: characters, their columns, rows. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mantou::cli {

// Bytes of the character at `at` with the marks that combine with it; 0 at the end.
size_t step_right(std::string_view text, size_t at);
// Bytes of the character before `at`, as above; 0 at the start.
size_t step_left(std::string_view text, size_t at);

struct Layout {
  std::vector<std::string> rows;  // as printed: at most `columns` wide, without controls
  size_t cursor_row = 0, cursor_column = 0;
};

// `text` behind the prompt, its further lines indented as far. The cursor stands before byte
// `cursor` of the text.
Layout lay_out(std::string_view prompt, std::string_view text, size_t cursor, size_t columns);

}  // namespace mantou::cli
