#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace mantou {
namespace {

[[noreturn]] void fail_io(const std::filesystem::path& path, const char* what, int error) {
  fail_param(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, path.string(), "{}: {} ({})",
             path.string(), what, std::strerror(error));
}

class Descriptor {
 public:
  // O_NONBLOCK changes nothing for regular files; opening a named pipe would wait for a writer.
  explicit Descriptor(const std::filesystem::path& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) fail_io(path, "cannot open the file", errno);
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

size_t regular_size(const std::filesystem::path& path, int fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) fail_io(path, "cannot read the file's size", errno);
  if (!S_ISREG(status.st_mode))
    fail_param(ErrorCode::kInvalidArgument, path.string(), "{}: not a regular file", path.string());
  return size_t(status.st_size);
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path, const std::byte* data, size_t size)
    : path_(std::move(path)), data_(data), size_(size) {}

MappedFile::~MappedFile() {
  if (size_ > 0) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor file(path);
  const size_t size = regular_size(path, file.get());
  const std::byte* data = nullptr;
  if (size > 0) {
    void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (mapped == MAP_FAILED) fail_io(path, "cannot map the file", errno);
    data = static_cast<const std::byte*>(mapped);
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(path, data, size));
}

std::string read_file(const std::filesystem::path& path, size_t limit) {
  const Descriptor file(path);
  const size_t size = regular_size(path, file.get());
  if (size > limit)
    fail_param(ErrorCode::kResourceExhausted, path.string(),
               "{}: {} bytes, more than the limit of {}", path.string(), size, limit);
  std::string bytes(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(file.get(), bytes.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_io(path, "cannot read the file", errno);
    if (n == 0) break;  // it shrank under us
    done += size_t(n);
  }
  bytes.resize(done);
  return bytes;
}

std::vector<std::filesystem::path> children(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> out;
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error))
    out.push_back(at->path());
  std::sort(out.begin(), out.end());
  return out;
}

std::filesystem::path cache_directory() {
  if (const char* own = std::getenv("MANTOU_CACHE"); own && *own) return own;
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg)
    return std::filesystem::path(xdg) / "mantou";
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home && *home ? home : "/tmp") / ".cache" / "mantou";
}

uint64_t file_bytes(const std::filesystem::path& path) {
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(path, error);
  return error ? 0 : bytes;
}

}  // namespace mantou
