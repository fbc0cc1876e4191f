// A blob on its way: HASH.incomplete, its length and the digest of what is in it. One thread, under
// the blob's lock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "hub/download/digest.h"

namespace mantou::hub {

class PartialFile {
 public:
  // Opens or makes the file and digests what an earlier run left; more than `size` bytes are none.
  PartialFile(std::filesystem::path path, std::string hash, uint64_t size);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  uint64_t bytes() const { return bytes_; }
  bool is_right() const;  // length and hash
  void append(std::string_view bytes);
  void restart();                                    // empty again
  void finish(const std::filesystem::path& target);  // to the disk, then under its final name
  void remove();

 private:
  std::filesystem::path path_;
  std::string hash_;
  uint64_t size_, bytes_ = 0;
  int fd_ = -1;
  Digest digest_;
};

}  // namespace mantou::hub
