#include "cli/chat/line_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "cli/chat/screen.h"
#include "cli/private_file.h"

namespace mantou::cli {
namespace {

constexpr size_t kMostEntries = 1000;
constexpr size_t kLongestEntry = size_t{16} << 10;  // of those in the file
constexpr size_t kLargestFile = 2 * kMostEntries * 2 * kLongestEntry;

// An entry is a line of the file: "\n" stands for the end of a line in it, "\\" for a backslash.
std::string escaped(std::string_view entry) {
  std::string line;
  for (const char c : entry) {
    if (c == '\\') line += "\\\\";
    if (c == '\n') line += "\\n";
    if (c != '\\' && c != '\n') line += c;
  }
  return line + '\n';
}

std::string unescaped(std::string_view line) {
  std::string entry;
  for (size_t i = 0; i < line.size(); i++) {
    if (line[i] != '\\' || i + 1 == line.size())
      entry += line[i];
    else
      entry += line[++i] == 'n' ? '\n' : line[i];
  }
  return entry;
}

}  // namespace

LineHistory::LineHistory(std::filesystem::path file) : file_(std::move(file)) {
  std::error_code error;
  if (file_.empty() || !std::filesystem::exists(file_, error)) return;
  try {
    load();
  } catch (const Error&) {
    entries_.clear();  // a chat needs no history
  }
}

void LineHistory::load() {
  const std::string text = read_file(file_, kLargestFile);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string entry = unescaped(std::string_view(text).substr(begin, end - begin));
    if (!entry.empty() && is_utf8(entry) && without_controls(entry) == entry)
      entries_.push_back(std::move(entry));
    begin = end + 1;
  }
  if (entries_.size() <= 2 * kMostEntries) return;
  entries_.erase(entries_.begin(), entries_.end() - ptrdiff_t(kMostEntries));
  std::string kept;
  for (const std::string& entry : entries_) kept += escaped(entry);
  write_private_file(file_, kept);
}

void LineHistory::add(std::string_view entry) {
  if (entry.empty() || (!entries_.empty() && entries_.back() == entry)) return;
  entries_.emplace_back(entry);
  if (!file_.empty() && entry.size() <= kLongestEntry) append(escaped(entry));
}

void LineHistory::append(std::string_view line) const {
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  const int fd = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  ::fchmod(fd, 0600);
  [[maybe_unused]] const ssize_t written = ::write(fd, line.data(), line.size());
  ::close(fd);
}

}  // namespace mantou::cli
