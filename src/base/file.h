// Files and folders: whole reads with a size limit and read-only mappings. Any thread.
// Every failure is an Error that names the path and what the system said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mantou {

// A read-only mapping of a whole file. Shared, because tensors keep their file alive.
class MappedFile {
 public:
  // An empty file maps to an empty span; directories and devices are refused.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(std::filesystem::path path, const std::byte* data, size_t size);
  std::filesystem::path path_;
  const std::byte* data_;
  size_t size_;
};

// The file's bytes; a file of more than `limit` bytes is an error that names both.
std::string read_file(const std::filesystem::path& path, size_t limit = size_t{1} << 30);

// Entries of a directory by name; none when it cannot be read.
std::vector<std::filesystem::path> children(const std::filesystem::path& directory);

// $XDG_CACHE_HOME/mantou or ~/.cache/mantou; $MANTOU_CACHE overrides.
std::filesystem::path cache_directory();

// The file's size behind symbolic links; 0 when there is no such file.
uint64_t file_bytes(const std::filesystem::path& path);

}  // namespace mantou
