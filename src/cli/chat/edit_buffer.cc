#include "cli/chat/edit_buffer.h"

#include <utility>

#include "cli/chat/text_columns.h"

namespace mantou::cli {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n'; }

}  // namespace

void EditBuffer::insert(std::string_view text) {
  text_.insert(cursor_, text);
  cursor_ += text.size();
}

void EditBuffer::replace(std::string text) {
  text_ = std::move(text);
  cursor_ = text_.size();
}

void EditBuffer::left() { cursor_ -= step_left(text_, cursor_); }

void EditBuffer::right() { cursor_ += step_right(text_, cursor_); }

void EditBuffer::erase_before() { cut(cursor_ - step_left(text_, cursor_), cursor_); }

void EditBuffer::erase_behind() { cut(cursor_, cursor_ + step_right(text_, cursor_)); }

size_t EditBuffer::word_begin() const {
  size_t at = cursor_;
  while (at > 0 && is_space(text_[at - 1])) at--;
  while (at > 0 && !is_space(text_[at - 1])) at--;
  return at;
}

size_t EditBuffer::word_end() const {
  size_t at = cursor_;
  while (at < text_.size() && is_space(text_[at])) at++;
  while (at < text_.size() && !is_space(text_[at])) at++;
  return at;
}

size_t EditBuffer::line_begin(size_t at) const {
  while (at > 0 && text_[at - 1] != '\n') at--;
  return at;
}

size_t EditBuffer::line_end(size_t at) const {
  while (at < text_.size() && text_[at] != '\n') at++;
  return at;
}

void EditBuffer::cut(size_t begin, size_t end) {
  text_.erase(begin, end - begin);
  cursor_ = begin;
}

size_t EditBuffer::same_place(size_t line) const {
  const size_t end = line_end(line);
  for (size_t at = line_begin(cursor_); at < cursor_ && line < end; at += step_right(text_, at))
    line += step_right(text_, line);
  return line;
}

bool EditBuffer::up() {
  const size_t begin = line_begin(cursor_);
  if (begin == 0) return false;
  cursor_ = same_place(line_begin(begin - 1));
  return true;
}

bool EditBuffer::down() {
  const size_t end = line_end(cursor_);
  if (end == text_.size()) return false;
  cursor_ = same_place(end + 1);
  return true;
}

}  // namespace mantou::cli
