// What a chat prints: answers on one stream, remarks on another; in a terminal reasoning is dim
// and nothing that a model writes can command the terminal. Main thread.
#pragma once

#include <ostream>
#include <string>
#include <string_view>

#include "cli/chat/answer_source.h"

namespace mantou::cli {

struct ScreenOptions {
  // People read the answers: reasoning is shown, control characters are not passed on. Otherwise
  // there is only the answer's text, as it is.
  bool terminal = false;
  bool colour = false;
};

class Screen {
 public:
  Screen(std::ostream& out, std::ostream& notes, ScreenOptions options)
      : out_(out), notes_(notes), options_(options) {}

  void piece(Piece piece, std::string_view text);
  void end_answer(bool cut_off);
  // Lines for people; the last ends by itself.
  void note(std::string_view text);

 private:
  void leave_reasoning();
  void print(std::string_view text);

  std::ostream& out_;
  std::ostream& notes_;
  const ScreenOptions options_;
  bool in_reasoning_ = false;
  bool at_start_ = true;  // of the answer, where empty lines are left out behind reasoning
  char last_ = '\n';      // that was printed
};

// `text` without what a terminal would obey: control characters but for tab and newline.
std::string without_controls(std::string_view text);

}  // namespace mantou::cli
