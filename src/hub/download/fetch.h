// Fetching a model by name: what a repository offers, what of it is wanted and missing, and getting
// that into the Hugging Face cache.
//
// plan() asks the hub and changes nothing; fetch() downloads. A model can be seen by list_models()
// only when all of its files are here. Blocks its thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hub/download/blob_download.h"
#include "hub/download/choice.h"

namespace mantou::hub {

struct FetchPlan {
  RepoListing listing;
  std::vector<RepoFile> files;    // chosen; size and hash are known
  std::vector<RepoFile> missing;  // those of them that are not here yet
  uint64_t bytes = 0;             // of files
  uint64_t missing_bytes = 0;     // to come; what an earlier run left counts as here
};

struct FetchProgress {
  std::string file;              // that is coming now
  size_t number = 0, count = 0;  // 1 ≤ number ≤ count, of the files that were missing
  uint64_t done = 0, total = 0;  // bytes of all missing files
};

struct FetchEvents {
  std::function<void(const FetchProgress&)> progress;
  std::function<void(const std::string& message)> note;
};

struct FetchOptions {
  std::filesystem::path hf_cache;
  Endpoint endpoint;
  RetryPolicy retry;
  uint64_t keep_free = uint64_t{1} << 30;  // bytes of the disk that are not touched
};

// What to open of a model that is here already, whole; empty when it is not.
std::filesystem::path find_fetched(const std::filesystem::path& hf_cache, const RepoWish& wish);

class Fetcher {
 public:
  explicit Fetcher(FetchOptions options, std::unique_ptr<Transport> transport = nullptr);

  FetchPlan plan(const RepoWish& wish);
  // Returns what to open: the first .gguf file, or the directory.
  std::filesystem::path fetch(const FetchPlan& plan, const FetchEvents& events);

 private:
  void require_space(const FetchPlan& plan) const;

  FetchOptions options_;
  std::unique_ptr<Transport> transport_;
  HubClient client_;
};

}  // namespace mantou::hub
