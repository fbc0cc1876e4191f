// What of the Hugging Face cache nobody needs: blobs that no snapshot links to, downloads nobody
// goes on with, locks nobody holds. Repositories that are being fetched are left alone. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace mantou::hub {

struct Garbage {
  enum class Kind { kBlob, kIncomplete, kLock };
  Kind kind;
  std::filesystem::path path;
  uint64_t bytes = 0;
};

inline constexpr std::chrono::hours kIncompleteAge{24};  // younger downloads may be gone on with

// Finds it and, when `remove` is set, removes it while the repository is locked.
std::vector<Garbage> collect_garbage(const std::filesystem::path& hf_cache, bool remove);

}  // namespace mantou::hub
