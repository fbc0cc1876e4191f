// Brings one file's contents into the cache: resumes what an earlier run left, tries again after
// cuts and busy servers, and lets a blob appear only when its length and hash are right. Blocks its
// thread; several threads and processes may want the same blob.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "hub/download/hub_client.h"
#include "hub/download/repo_cache.h"

namespace mantou::hub {

struct DownloadEvents {
  std::function<void(uint64_t bytes)> have;              // of this file so far, on the disk
  std::function<void(const std::string& message)> note;  // one line for people
};

// `file` has size and hash. Errors name the file and what to do; a partial file stays for the next
// run unless its contents proved wrong.
void download_blob(HubClient& client, const RepoCache& cache, const std::string& repo,
                   const std::string& commit, const RepoFile& file, const DownloadEvents& events);

}  // namespace mantou::hub
