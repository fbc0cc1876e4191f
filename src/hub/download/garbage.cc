#include "hub/download/garbage.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "hub/download/file_lock.h"
#include "hub/download/repo_cache.h"
#include "hub/resolve.h"

namespace mantou::hub {
namespace {

namespace fs = std::filesystem;
using Kind = Garbage::Kind;

bool is_old(const fs::path& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - time > kIncompleteAge;
}

// The names of the blobs that links of the snapshots lead to. An unreadable directory is an error:
// what it links to must not be taken for garbage.
std::set<std::string> used_blobs(const fs::path& repository) {
  std::set<std::string> used;
  const fs::path snapshots = repository / "snapshots";
  std::error_code error;
  if (!fs::exists(snapshots, error)) return used;
  // A snapshot may itself be a link, to where somebody moved it; no chain of links is followed far.
  constexpr int kDeepest = 16;
  fs::recursive_directory_iterator at(snapshots, fs::directory_options::follow_directory_symlink,
                                      error);
  for (const fs::recursive_directory_iterator end; !error && at != end; at.increment(error)) {
    std::error_code none;
    if (at->is_symlink(none)) used.insert(fs::read_symlink(at->path(), none).filename().string());
    if (at.depth() >= kDeepest) at.disable_recursion_pending();
  }
  if (error)
    fail_param(ErrorCode::kIo, snapshots.string(), "{}: cannot read the directory ({})",
               snapshots.string(), error.message());
  return used;
}

void add_blobs(const fs::path& repository, std::vector<Garbage>& out) {
  const std::set<std::string> used = used_blobs(repository);
  for (const fs::path& path : children(repository / "blobs")) {
    std::error_code error;
    const uint64_t bytes = fs::file_size(path, error);
    if (error || !fs::is_regular_file(path, error)) continue;
    if (path.extension() == ".incomplete") {
      if (is_old(path)) out.push_back({Kind::kIncomplete, path, bytes});
    } else if (!used.contains(path.filename().string())) {
      out.push_back({Kind::kBlob, path, bytes});
    }
  }
}

void remove_all(const std::vector<Garbage>& items) {
  for (const Garbage& item : items) {
    std::error_code error;
    fs::remove(item.path, error);
    if (error)
      fail_param(ErrorCode::kIo, item.path.string(), "{}: cannot remove the file ({})",
                 item.path.string(), error.message());
  }
}

// Locks of blobs that nobody holds; the lock over the fetches of the repository is the caller's.
void collect_locks(const fs::path& locks, bool remove, std::vector<Garbage>& out) {
  for (const fs::path& path : children(locks)) {
    std::error_code none;
    if (path.extension() != ".lock" || !fs::is_regular_file(path, none)) continue;
    const auto held = FileLock::try_take(path);  // so that nobody takes it before it is gone
    if (!held) continue;
    out.push_back({Kind::kLock, path, 0});
    if (remove) remove_all({out.back()});
  }
}

}  // namespace

std::vector<Garbage> collect_garbage(const fs::path& hf_cache, bool remove) {
  std::vector<Garbage> out;
  for (const fs::path& repository : children(hf_cache)) {
    const std::string repo = hf_repo_id(repository.filename().string());
    if (repo.empty()) continue;
    const RepoCache cache(hf_cache, repo);
    std::error_code none;
    const bool had_lock = fs::exists(cache.fetch_lock(), none);
    std::optional<FileLock> alone;
    if (remove || had_lock) {  // merely looking leaves a cache that cannot be written as it is
      alone = FileLock::try_take(cache.fetch_lock());
      if (!alone) continue;
    }
    std::vector<Garbage> items;
    add_blobs(repository, items);
    if (remove) remove_all(items);
    out.insert(out.end(), items.begin(), items.end());
    if (!had_lock) fs::remove(cache.fetch_lock(), none);
  }
  for (const fs::path& locks : children(hf_cache / ".locks")) {
    collect_locks(locks, remove, out);
    std::error_code none;
    if (remove) fs::remove(locks, none);  // when it is empty
  }
  return out;
}

}  // namespace mantou::hub
