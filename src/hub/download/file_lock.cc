#include "hub/download/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"

namespace mantou::hub {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_lock(const fs::path& path, int error) {
  fail_param(ErrorCode::kIo, path.string(), "{}: cannot lock the file ({})", path.string(),
             std::strerror(error));
}

// Whether the file that `fd` has open is still the one at `path`: its holder may have removed it.
bool still_there(int fd, const fs::path& path) {
  struct stat open_file{}, named_file{};
  return ::fstat(fd, &open_file) == 0 && ::stat(path.c_str(), &named_file) == 0 &&
         open_file.st_ino == named_file.st_ino && open_file.st_dev == named_file.st_dev;
}

int holder_of(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[16];
  const ssize_t bytes = ::read(fd, text, sizeof(text));
  ::close(fd);
  int process = 0;
  if (bytes > 0) std::from_chars(text, text + bytes, process);
  return process;
}

}  // namespace

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

std::optional<FileLock> FileLock::try_take(const fs::path& path, Mode mode) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  for (;;) {
    FileLock lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (lock.fd_ < 0) fail_lock(path, errno);
    const int how = (mode == Mode::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB;
    if (::flock(lock.fd_, how) != 0) {
      if (errno == EWOULDBLOCK) return std::nullopt;
      if (errno == EINTR) continue;
      fail_lock(path, errno);
    }
    if (!still_there(lock.fd_, path)) continue;
    if (mode == Mode::kExclusive) {
      const std::string process = fmt::format("{}\n", ::getpid());
      if (::ftruncate(lock.fd_, 0) != 0 ||
          ::pwrite(lock.fd_, process.data(), process.size(), 0) != ssize_t(process.size()))
        fail_lock(path, errno);
    }
    return lock;
  }
}

FileLock FileLock::take(const fs::path& path, Mode mode,
                        const std::function<void(int process)>& on_wait) {
  constexpr std::chrono::milliseconds kPoll{100};
  for (bool said = false;; said = true) {
    if (auto lock = try_take(path, mode)) return std::move(*lock);
    if (!said && on_wait) on_wait(holder_of(path));
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace mantou::hub
