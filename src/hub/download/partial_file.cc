#include "hub/download/partial_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace mantou::hub {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_file(const fs::path& path, const char* what, int error) {
  if (error == ENOSPC || error == EDQUOT)
    fail_param(
        ErrorCode::kResourceExhausted, path.string(),
        "{}: the disk is full; make room (`mantou gc` shows what is unused) and run the same "
        "command to go on",
        path.string());
  fail_param(ErrorCode::kIo, path.string(), "{}: cannot {} ({})", path.string(), what,
             std::strerror(error));
}

}  // namespace

PartialFile::PartialFile(fs::path path, std::string hash, uint64_t size)
    : path_(std::move(path)),
      hash_(std::move(hash)),
      size_(size),
      digest_(Digest::like(hash_, size)) {
  std::error_code error;
  fs::create_directories(path_.parent_path(), error);
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) fail_file(path_, "open the file", errno);
  std::vector<char> buffer(size_t{1} << 20);
  for (;;) {
    const ssize_t n = ::read(fd_, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_file(path_, "read the file", errno);
    if (n == 0) break;
    bytes_ += uint64_t(n);
    if (bytes_ > size_) {
      restart();
      return;
    }
    digest_.add({buffer.data(), size_t(n)});
  }
}

PartialFile::~PartialFile() {
  if (fd_ >= 0) ::close(fd_);
}

bool PartialFile::is_right() const { return bytes_ == size_ && digest_.hex() == hash_; }

void PartialFile::append(std::string_view bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::pwrite(fd_, bytes.data() + done, bytes.size() - done, off_t(bytes_ + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_file(path_, "write the file", errno);
    done += size_t(n);
  }
  digest_.add(bytes);
  bytes_ += bytes.size();
}

void PartialFile::restart() {
  if (::ftruncate(fd_, 0) != 0) fail_file(path_, "empty the file", errno);
  bytes_ = 0;
  digest_ = Digest::like(hash_, size_);
}

void PartialFile::finish(const fs::path& target) {
  if (::fsync(fd_) != 0) fail_file(path_, "write the file", errno);
  if (::rename(path_.c_str(), target.c_str()) != 0) fail_file(path_, "rename the file", errno);
}

void PartialFile::remove() {
  std::error_code ignored;
  fs::remove(path_, ignored);
}

}  // namespace mantou::hub
