// One repository in the Hugging Face cache: models--ORG--NAME/{blobs,refs,snapshots}, which other
// programs share.
//
// Contents lie in blobs/ under their hash; a snapshot is a directory of links to them, one a
// commit; refs/main names the current one. Blobs appear whole (renamed from HASH.incomplete), links
// only to whole blobs. Values; any thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hub/download/answers.h"

namespace mantou::hub {

class RepoCache {
 public:
  RepoCache(const std::filesystem::path& hf_cache, const std::string& repo);

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path blobs() const { return root_ / "blobs"; }
  std::filesystem::path blob(const std::string& hash) const { return blobs() / hash; }
  std::filesystem::path incomplete(const std::string& hash) const;
  std::filesystem::path snapshot(const std::string& commit) const;
  std::filesystem::path blob_lock(const std::string& hash) const;
  std::filesystem::path fetch_lock() const;  // shared while fetching, exclusive to collect garbage

  // Whether the file's contents are here, whole.
  bool has(const RepoFile& file) const;

  // Links `files` (which has() each of them) into the snapshot of `commit` and makes it the current
  // one. A new snapshot appears in one step.
  void publish(const std::string& commit, const std::vector<RepoFile>& files) const;

 private:
  std::filesystem::path root_, locks_;
};

}  // namespace mantou::hub
