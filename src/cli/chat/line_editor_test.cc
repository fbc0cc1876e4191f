// Typing: bytes to keys, what keys do to the text, how it lies on the screen, and all of it at a
// pseudo terminal. Sequences are those that xterm's control sequence document lists.
#include "cli/chat/line_editor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "base/file.h"
#include "cli/chat/text_columns.h"

namespace mantou::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A terminal of 20 columns whose other end a test holds.
class Terminal {
 public:
  Terminal() {
    master_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (master_ < 0 || ::grantpt(master_) != 0 || ::unlockpt(master_) != 0) return;
    slave_ = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    const winsize size{6, 20, 0, 0};
    ::ioctl(slave_, TIOCSWINSZ, &size);
    ::fcntl(master_, F_SETFL, O_NONBLOCK);
    // As a chat leaves it while the user types ahead: nothing is made of the bytes before the
    // editor reads them.
    termios mode{};
    ::tcgetattr(slave_, &mode);
    mode.c_lflag &= ~tcflag_t(ICANON | ECHO | ISIG);
    mode.c_iflag &= ~tcflag_t(ICRNL);
    ::tcsetattr(slave_, TCSANOW, &mode);
  }
  ~Terminal() {
    ::close(slave_);
    ::close(master_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  int end() const { return slave_; }
  void type(std::string_view keys) const {
    ASSERT_EQ(::write(master_, keys.data(), keys.size()), ssize_t(keys.size()));
  }
  std::string shown() const {
    std::string text;
    char bytes[4096];
    for (ssize_t n; (n = ::read(master_, bytes, sizeof bytes)) > 0;) text.append(bytes, size_t(n));
    return text;
  }

 private:
  int master_ = -1, slave_ = -1;
};

class LineEditorTest : public ::testing::Test {
 protected:
  std::string typed(std::string_view keys) {
    terminal_.type(keys);
    const Line line = editor_.read("> ");
    shown_ = terminal_.shown();
    if (line.kind == Line::Kind::kText) return line.text;
    return line.kind == Line::Kind::kEnd ? "[end]" : "[interrupt]";
  }

  Terminal terminal_;
  LineEditor editor_{terminal_.end(), terminal_.end(), LineHistory({})};
  std::string shown_;
};

TEST_F(LineEditorTest, Editing) {
  EXPECT_EQ(typed("helo\x1b[Dl\r"), "hello");
  EXPECT_THAT(shown_, HasSubstr("> hello"));
  EXPECT_EQ(typed("bc\x01"
                  "a\x05"
                  "d\r"),
            "abcd");
  EXPECT_EQ(typed("one two\x17three\r"), "one three");
  EXPECT_EQ(typed("one two\x1b[1;5D\x0b"
                  "x\r"),
            "one x");
  EXPECT_EQ(typed("gone\x15"
                  "here\r"),
            "here");
  EXPECT_EQ(typed("ab\x1b[D\x1b[3~c\x7f\x7f\r"), "");
  EXPECT_EQ(typed("a\x1b[D\x1bOC\x1b[Hx\x1b[Fy\r"), "xay");
  EXPECT_EQ(typed("a\x1b[99;9Zb\x1bzc\r"), "abc");  // keys that mean nothing here
}

TEST_F(LineEditorTest, CharactersAreWhole) {
  EXPECT_EQ(typed("aä\x7f"
                  "b\r"),
            "ab");
  EXPECT_EQ(typed("饅頭\x1b[D\x7fx\r"), "x頭");
  EXPECT_EQ(typed("e\u0301x\x1b[D\x1b[Dy\r"), "ye\u0301x");  // a letter with its accent
}

TEST_F(LineEditorTest, PastedLinesAreOneText) {
  EXPECT_EQ(typed("see: \x1b[200~a\r\nb\rc\n\x1b[31m\td\x1b[201~!\r"), "see: a\nb\nc\n[31m\td!");
  EXPECT_EQ(typed("a\x1b\rb\nc\r"), "a\nb\nc");  // Alt-Enter, Ctrl-J
  EXPECT_EQ(typed("ab\x1b\rcd\x1b[AX\x1b[BY\r"), "abX\ncdY");
}

TEST(LineEditor, TabCompletesAtTheStart) {
  const Terminal terminal;
  LineEditor editor(terminal.end(), terminal.end(), LineHistory({}), {"/save", "/set", "/stats"});
  const auto typed = [&](std::string_view keys) {
    terminal.type(keys);
    return editor.read("> ").text;
  };
  EXPECT_EQ(typed("/sa\tx\r"), "/save x");
  EXPECT_EQ(typed("/s\te\t1\r"), "/set 1");
  EXPECT_EQ(typed("/x\t\r"), "/x\t");
  EXPECT_EQ(typed("\ta\r"), "\ta");
}

TEST_F(LineEditorTest, History) {
  typed("one\r");
  typed("two\r");
  typed("two\r");
  EXPECT_EQ(typed("\x1b[A\x1b[A\r"), "one");
  EXPECT_EQ(typed("dra\x1b[A\x1b[A\x1b[A\x1b[B\x1b[B\x1b[Bft\r"), "draft");
  EXPECT_EQ(typed("\x10!\r"), "draft!");
}

TEST_F(LineEditorTest, InterruptAndEnd) {
  EXPECT_EQ(typed("\x03"), "[interrupt]");
  EXPECT_EQ(typed("\x04"), "[end]");
  EXPECT_EQ(typed("dropped\x03kept\r"), "kept");
  EXPECT_EQ(typed("ab\x01\x04\r"), "b");
}

TEST_F(LineEditorTest, TheTerminalIsLeftAsItWas) {
  termios before{}, after{};
  ::tcgetattr(terminal_.end(), &before);
  typed("x\r");
  ::tcgetattr(terminal_.end(), &after);
  EXPECT_EQ(before.c_lflag, after.c_lflag);
  EXPECT_EQ(before.c_iflag, after.c_iflag);
  EXPECT_THAT(shown_, HasSubstr("\x1b[?2004h"));
  EXPECT_TRUE(shown_.ends_with("\x1b[?2004l"));
}

TEST(Layout, RowsAndCursor) {
  Layout layout = lay_out("> ", "abcdef", 6, 5);
  EXPECT_THAT(layout.rows, ElementsAre("> abc", "def"));
  EXPECT_EQ(layout.cursor_row, 1u);
  EXPECT_EQ(layout.cursor_column, 3u);
  layout = lay_out("> ", "abc", 3, 5);  // the cursor needs a place behind a full row
  EXPECT_THAT(layout.rows, ElementsAre("> abc", ""));
  EXPECT_EQ(layout.cursor_row, 1u);
  EXPECT_EQ(layout.cursor_column, 0u);
  layout = lay_out("> ", "a\nb", 0, 5);
  EXPECT_THAT(layout.rows, ElementsAre("> a", "  b"));
  EXPECT_EQ(layout.cursor_row, 0u);
  EXPECT_EQ(layout.cursor_column, 2u);
  layout = lay_out("… ", "饅頭", 6, 5);  // two columns each
  EXPECT_THAT(layout.rows, ElementsAre("… 饅", "頭"));
  EXPECT_EQ(layout.cursor_column, 2u);
  EXPECT_EQ(lay_out("> ", "e\u0301", 3, 20).cursor_column, 3u);
}

class LineHistoryTest : public ::testing::Test {
 protected:
  ~LineHistoryTest() override { std::filesystem::remove_all(folder_); }
  const std::filesystem::path folder_ = std::filesystem::temp_directory_path() /
                                        ("mantou_history_test." + std::to_string(::getpid()));
  const std::filesystem::path file_ = folder_ / "state" / "chat_history";
};

TEST_F(LineHistoryTest, IsKeptForItsUserAlone) {
  LineHistory history(file_);
  EXPECT_THAT(history.entries(), IsEmpty());
  history.add("one");
  history.add("two\nlines \\n");
  history.add("two\nlines \\n");
  history.add("");
  EXPECT_THAT(LineHistory(file_).entries(), ElementsAre("one", "two\nlines \\n"));
  struct stat status{};
  ASSERT_EQ(::stat(file_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(LineHistoryTest, IsBounded) {
  std::filesystem::create_directories(file_.parent_path());
  {
    std::ofstream out(file_);
    for (int i = 0; i < 2500; i++) out << "entry " << i << "\n";
  }
  const LineHistory history(file_);
  EXPECT_EQ(history.entries().size(), 1000u);
  EXPECT_EQ(history.entries().back(), "entry 2499");
  EXPECT_EQ(LineHistory(file_).entries().size(), 1000u);
  EXPECT_EQ(read_file(file_).substr(0, 11), "entry 1500\n");
  LineHistory same(file_);
  same.add(std::string(1 << 20, 'x'));  // stays in this chat
  EXPECT_EQ(same.entries().size(), 1001u);
  EXPECT_EQ(LineHistory(file_).entries().size(), 1000u);
}

TEST_F(LineHistoryTest, NoFileIsNoReasonToFail) {
  std::filesystem::create_directories(file_);  // a folder in its place
  LineHistory history(file_);
  history.add("one");
  EXPECT_THAT(history.entries(), ElementsAre("one"));
  LineHistory nowhere("/proc/none/chat_history");
  nowhere.add("one");
  EXPECT_THAT(nowhere.entries(), ElementsAre("one"));
}

}  // namespace
}  // namespace mantou::cli
