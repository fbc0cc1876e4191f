#include "cli/chat/text_columns.h"

#include <locale.h>
#include <wchar.h>

#include <algorithm>
#include <cstdint>

#include "base/utf8.h"

namespace mantou::cli {
namespace {

constexpr size_t kTab = 4;  // columns; a message's tabs need not meet stops

size_t length_at(std::string_view text, size_t at) {
  return std::max<size_t>(character_length(text.substr(at)), 1);
}

// Columns of the character that is the whole of `bytes`; the system's tables know.
size_t columns_of(std::string_view bytes) {
  if (bytes.size() == 1) return bytes[0] == '\t' ? kTab : 1;
  wchar_t code = wchar_t(uint8_t(bytes[0]) & (0xFF >> (bytes.size() + 1)));
  for (const char c : bytes.substr(1)) code = (code << 6) | (uint8_t(c) & 0x3F);
  static const locale_t utf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", locale_t{});
  if (utf8 == locale_t{}) return 1;
  const locale_t before = ::uselocale(utf8);
  const int width = ::wcwidth(code);
  ::uselocale(before);
  return size_t(std::max(width, 0));
}

}  // namespace

size_t step_right(std::string_view text, size_t at) {
  if (at >= text.size()) return 0;
  size_t end = at + length_at(text, at);
  while (end < text.size()) {
    const size_t length = length_at(text, end);
    if (columns_of(text.substr(end, length)) > 0) break;
    end += length;
  }
  return end - at;
}

size_t step_left(std::string_view text, size_t at) {
  size_t begin = at;
  while (begin > 0) {
    do begin--;
    while (begin > 0 && (uint8_t(text[begin]) & 0xC0) == 0x80);
    if (columns_of(text.substr(begin, length_at(text, begin))) > 0) break;
  }
  return at - begin;
}

Layout lay_out(std::string_view prompt, std::string_view text, size_t cursor, size_t columns) {
  Layout layout;
  size_t column = 0, indent = 0;
  layout.rows.emplace_back();
  const auto new_row = [&](size_t blanks) {
    layout.rows.emplace_back(blanks, ' ');
    column = blanks;
  };
  const auto put = [&](std::string_view character, size_t width) {
    if (column + width > columns && column > 0) new_row(0);
    layout.rows.back() += character == "\t" ? std::string(kTab, ' ') : std::string(character);
    column += width;
  };
  for (size_t at = 0; at < prompt.size(); at += length_at(prompt, at)) {
    const std::string_view character = prompt.substr(at, length_at(prompt, at));
    put(character, columns_of(character));
  }
  indent = column < columns ? column : 0;
  for (size_t at = 0;; at += length_at(text, at)) {
    if (at == cursor) {
      if (column >= columns) new_row(0);
      layout.cursor_row = layout.rows.size() - 1;
      layout.cursor_column = column;
    }
    if (at >= text.size()) return layout;
    const std::string_view character = text.substr(at, length_at(text, at));
    if (character == "\n")
      new_row(indent);
    else
      put(character, columns_of(character));
  }
}

}  // namespace mantou::cli
