// What was typed in earlier chats and this one, newest last, in a file that only the user may read.
//
// Another chat may write to it meanwhile. The file is a convenience: whatever is wrong with it, the
// chat goes on without. One thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace mantou::cli {

class LineHistory {
 public:
  // An empty path: it is not kept.
  explicit LineHistory(std::filesystem::path file);

  const std::vector<std::string>& entries() const { return entries_; }
  // Nothing when it is empty or the same as the last.
  void add(std::string_view entry);

 private:
  void load();
  void append(std::string_view line) const;

  const std::filesystem::path file_;
  std::vector<std::string> entries_;
};

}  // namespace mantou::cli
