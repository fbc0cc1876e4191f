// The text that is being typed and the cursor in it. Characters are moved over and deleted with the
// marks that combine with them. Pure; one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mantou::cli {

class EditBuffer {
 public:
  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }  // bytes before it

  void insert(std::string_view text);
  void replace(std::string text);  // the cursor goes to its end
  void left();
  void right();
  void word_left() { cursor_ = word_begin(); }
  void word_right() { cursor_ = word_end(); }
  void line_start() { cursor_ = line_begin(cursor_); }
  void line_end() { cursor_ = line_end(cursor_); }
  // To the line above or below, the same number of characters from its start; false: there is none.
  bool up();
  bool down();
  void erase_before();
  void erase_behind();
  void cut_word() { cut(word_begin(), cursor_); }
  void cut_next_word() { cut(cursor_, word_end()); }
  void cut_before() { cut(line_begin(cursor_), cursor_); }
  void cut_behind() { cut(cursor_, line_end(cursor_)); }

 private:
  size_t word_begin() const;
  size_t word_end() const;
  size_t line_begin(size_t at) const;
  size_t line_end(size_t at) const;
  void cut(size_t begin, size_t end);
  // The place in the line at `line` that is as many characters from its start as the cursor from
  // that of its own.
  size_t same_place(size_t line) const;

  std::string text_;
  size_t cursor_ = 0;
};

}  // namespace mantou::cli
