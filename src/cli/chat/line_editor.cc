#include "cli/chat/line_editor.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/error.h"
#include "cli/chat/text_columns.h"

namespace mantou::cli {
namespace {

constexpr std::string_view kPasteOn = "\x1b[?2004h", kPasteOff = "\x1b[?2004l";
constexpr int kEscapeWait = 50;  // milliseconds in which the rest of a sequence comes

// Keys come one by one and unprinted while it lives.
class RawMode {
 public:
  RawMode(int in, int out) : in_(in), out_(out) {
    if (::tcgetattr(in_, &before_) != 0)
      fail(ErrorCode::kIo, "cannot read the terminal's mode: {}", std::strerror(errno));
    enter();
  }
  ~RawMode() { leave(); }
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;

 private:
  void enter() {
    termios raw = before_;
    raw.c_iflag &= ~tcflag_t(BRKINT | ICRNL | INLCR | INPCK | ISTRIP | IXON);
    raw.c_lflag &= ~tcflag_t(ECHO | ICANON | IEXTEN | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    ::tcsetattr(in_, TCSADRAIN, &raw);
    [[maybe_unused]] const ssize_t n = ::write(out_, kPasteOn.data(), kPasteOn.size());
  }
  void leave() {
    [[maybe_unused]] const ssize_t n = ::write(out_, kPasteOff.data(), kPasteOff.size());
    ::tcsetattr(in_, TCSADRAIN, &before_);
  }

  const int in_, out_;
  termios before_{};
};

struct Size {
  size_t rows, columns;
};

Size size_of(int terminal) {
  winsize size{};
  if (::ioctl(terminal, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {24, 80};
  return {size.ws_row, size.ws_col};
}

}  // namespace

void LineEditor::write(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t n = ::write(out_, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;  // the terminal is gone, which reading will tell
    text.remove_prefix(size_t(n));
  }
}

bool LineEditor::waits(int milliseconds) const {
  pollfd wait{in_, POLLIN, 0};
  return ::poll(&wait, 1, milliseconds) == 0;
}

std::optional<Key> LineEditor::next_key() {
  for (;;) {
    if (keys_.escaped() && waits(kEscapeWait)) keys_.forget();
    char byte;
    const ssize_t n = ::read(in_, &byte, 1);
    if (n < 0 && errno == EINTR) {
      paint();  // the terminal may have another size now
      continue;
    }
    if (n <= 0) return std::nullopt;
    if (std::optional<Key> key = keys_.push(byte)) return key;
  }
}

Line LineEditor::read(std::string_view prompt) {
  prompt_ = prompt;
  buffer_ = {};
  place_ = history_.entries().size();
  painted_row_ = 0;
  Done done = Done::kNo;
  {
    std::optional<RawMode> raw(std::in_place, in_, out_);
    paint();
    while (done == Done::kNo) {
      const std::optional<Key> key = next_key();
      if (key && key->kind == Key::Kind::kSuspend) {
        leave();
        raw.reset();
        ::raise(SIGTSTP);
        raw.emplace(in_, out_);
      } else {
        done = key ? apply(*key) : Done::kEnd;
      }
      if (done == Done::kNo && waits(0)) paint();
    }
    leave();
  }
  if (done == Done::kEnd) return {Line::Kind::kEnd};
  if (done == Done::kInterrupt) return {Line::Kind::kInterrupt};
  history_.add(buffer_.text());
  return {Line::Kind::kText, buffer_.text()};
}

LineEditor::Done LineEditor::apply(const Key& key) {
  switch (key.kind) {
    case Key::Kind::kEnter:
      return Done::kEnter;
    case Key::Kind::kInterrupt:
      if (buffer_.text().empty()) return Done::kInterrupt;
      drop();
      return Done::kNo;
    case Key::Kind::kEndOrDelete:
      if (buffer_.text().empty()) return Done::kEnd;
      buffer_.erase_behind();
      return Done::kNo;
    case Key::Kind::kClearScreen:
      write("\x1b[H\x1b[2J");
      painted_row_ = 0;
      return Done::kNo;
    case Key::Kind::kUp:
      if (!buffer_.up()) recall(true);
      return Done::kNo;
    case Key::Kind::kDown:
      if (!buffer_.down()) recall(false);
      return Done::kNo;
    case Key::Kind::kEarlier:
    case Key::Kind::kLater:
      recall(key.kind == Key::Kind::kEarlier);
      return Done::kNo;
    default:
      edit(key);
      return Done::kNo;
  }
}

void LineEditor::edit(const Key& key) {
  switch (key.kind) {
    case Key::Kind::kText:
    case Key::Kind::kPaste:
      return buffer_.insert(key.text);
    case Key::Kind::kTab:
      return complete();
    case Key::Kind::kNewLine:
      return buffer_.insert("\n");
    case Key::Kind::kBackspace:
      return buffer_.erase_before();
    case Key::Kind::kDelete:
      return buffer_.erase_behind();
    case Key::Kind::kLeft:
      return buffer_.left();
    case Key::Kind::kRight:
      return buffer_.right();
    case Key::Kind::kWordLeft:
      return buffer_.word_left();
    case Key::Kind::kWordRight:
      return buffer_.word_right();
    case Key::Kind::kLineStart:
      return buffer_.line_start();
    case Key::Kind::kLineEnd:
      return buffer_.line_end();
    case Key::Kind::kCutWord:
      return buffer_.cut_word();
    case Key::Kind::kCutNextWord:
      return buffer_.cut_next_word();
    case Key::Kind::kCutBefore:
      return buffer_.cut_before();
    case Key::Kind::kCutBehind:
      return buffer_.cut_behind();
    default:
      return;
  }
}

void LineEditor::recall(bool earlier) {
  const auto& entries = history_.entries();
  if (place_ == (earlier ? 0 : entries.size())) return;
  if (place_ == entries.size()) draft_ = buffer_.text();
  place_ += earlier ? size_t(-1) : 1;
  buffer_.replace(place_ == entries.size() ? draft_ : entries[place_]);
}

// As far as all words that begin like the line agree; a space ends the only one.
void LineEditor::complete() {
  const std::string& text = buffer_.text();
  std::string found;
  size_t count = 0;
  for (const std::string& word : words_) {
    if (!word.starts_with(text) || text.empty()) continue;
    const auto end = std::mismatch(found.begin(), found.end(), word.begin(), word.end()).first;
    if (count++ == 0)
      found = word;
    else
      found.erase(end, found.end());
  }
  if (count == 0) return buffer_.insert("\t");
  buffer_.replace(count == 1 ? found + " " : found);
}

void LineEditor::drop() {
  leave();
  buffer_ = {};
  place_ = history_.entries().size();
}

// Draws the text anew from its first row on: rows above and below what the screen holds are left
// out.
void LineEditor::paint(bool whole) {
  const Size size = size_of(out_);
  const Layout layout = lay_out(prompt_, buffer_.text(), buffer_.cursor(), size.columns);
  const size_t count = whole ? layout.rows.size() : std::min(layout.rows.size(), size.rows);
  const size_t first = layout.cursor_row < count ? 0 : layout.cursor_row - count + 1;
  std::string out = painted_row_ > 0 ? fmt::format("\x1b[{}A", painted_row_) : "";
  out += "\r\x1b[J";
  for (size_t i = 0; i < count; i++) {
    if (i > 0) out += "\r\n";
    out += layout.rows[first + i];
  }
  painted_row_ = layout.cursor_row - first;
  if (count - 1 > painted_row_) out += fmt::format("\x1b[{}A", count - 1 - painted_row_);
  out += '\r';
  if (layout.cursor_column > 0) out += fmt::format("\x1b[{}C", layout.cursor_column);
  write(out);
}

// Shows all of the text and puts the cursor behind it.
void LineEditor::leave() {
  buffer_.replace(buffer_.text());
  paint(/*whole=*/true);
  write("\r\n");
  painted_row_ = 0;
}

}  // namespace mantou::cli
