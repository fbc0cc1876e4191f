#include "cli/private_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"

namespace mantou::cli {
namespace {

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    text.remove_prefix(size_t(n));
  }
  return ::fsync(fd) == 0;
}

}  // namespace

void write_private_file(const std::filesystem::path& path, std::string_view text) {
  std::string fresh = path.string() + ".XXXXXX";
  const int fd = ::mkstemp(fresh.data());  // 0600
  bool good = fd >= 0 && write_all(fd, text);
  int problem = errno;
  if (fd >= 0) ::close(fd);
  if (good && ::rename(fresh.c_str(), path.c_str()) != 0) {
    problem = errno;
    good = false;
  }
  if (good) return;
  if (fd >= 0) ::unlink(fresh.c_str());
  fail_param(ErrorCode::kIo, path.string(), "{}: cannot write the file: {}", path.string(),
             std::strerror(problem));
}

std::filesystem::path state_directory() {
  if (const char* xdg = std::getenv("XDG_STATE_HOME"); xdg && *xdg)
    return std::filesystem::path(xdg) / "mantou";
  if (const char* home = std::getenv("HOME"); home && *home)
    return std::filesystem::path(home) / ".local" / "state" / "mantou";
  return {};
}

}  // namespace mantou::cli
