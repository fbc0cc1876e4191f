// A lock between processes: a file that one of them holds with flock(), as huggingface_hub does.
//
// The system lets go of the lock when its holder ends, however it ends, so a lock file that lies
// about is never in the way; the file names its holder's process for people. Movable, one thread.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

namespace mantou::hub {

class FileLock {
 public:
  enum class Mode { kExclusive, kShared };

  // Empty when somebody else holds it. Makes the file and its directories.
  static std::optional<FileLock> try_take(const std::filesystem::path& path,
                                          Mode mode = Mode::kExclusive);
  // Waits for it; `on_wait` is called once with the holder's process, 0 when the file names none.
  static FileLock take(const std::filesystem::path& path, Mode mode,
                       const std::function<void(int process)>& on_wait);
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace mantou::hub
