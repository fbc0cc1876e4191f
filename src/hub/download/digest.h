// SHA-256, and the SHA-1 of git blobs, over bytes that come in pieces: how the hub names the
// contents of files. OpenSSL computes them. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace mantou::hub {

class Digest {
 public:
  // The one that `hex` is a value of: 64 digits mean SHA-256 of the contents, 40 git's SHA-1 of
  // "blob SIZE\0" and the contents.
  static Digest like(std::string_view hex, uint64_t size);
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  void add(std::string_view bytes);
  std::string hex() const;  // of what was added; more may be added afterwards

 private:
  struct State;
  explicit Digest(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace mantou::hub
