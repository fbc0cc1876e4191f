// Where the lines of a chat come from (a terminal with editing, a plain stream, a test), and the
// messages that they make. Main thread.
#pragma once

#include <istream>
#include <string>
#include <string_view>

namespace mantou::cli {

struct Line {
  enum class Kind { kText, kEnd, kInterrupt };  // kInterrupt: Ctrl-C on an empty line
  Kind kind = Kind::kEnd;
  std::string text = {};  // without the end of the line; an editor's may hold several
};

class LineReader {
 public:
  virtual ~LineReader() = default;
  // Waits for a line; `prompt` is for people.
  virtual Line read(std::string_view prompt) = 0;
};

// Lines of a stream. The prompt is printed when `prompts` is not null.
class StreamLines final : public LineReader {
 public:
  explicit StreamLines(std::istream& in, std::ostream* prompts = nullptr)
      : in_(in), prompts_(prompts) {}
  Line read(std::string_view prompt) override;

 private:
  std::istream& in_;
  std::ostream* const prompts_;
};

// What was typed until it was complete.
struct Input {
  Line::Kind kind = Line::Kind::kEnd;
  std::string text = {};
  bool verbatim = false;  // a message whatever it begins with: a block or several lines at once
};

// Joins lines: "\" at the end of one goes on in the next, """ begins and ends a block. A block that
// the input's end cuts off is kInvalidArgument; Ctrl-C within drops what was typed (an empty text).
class MessageReader {
 public:
  explicit MessageReader(LineReader& lines) : lines_(lines) {}
  Input next();

 private:
  Input block(std::string text);

  LineReader& lines_;
};

}  // namespace mantou::cli
