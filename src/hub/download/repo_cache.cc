#include "hub/download/repo_cache.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>

#include "base/error.h"

namespace mantou::hub {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_cache(const fs::path& path, const char* what, const std::error_code& error) {
  fail_param(ErrorCode::kIo, path.string(), "{}: cannot {} ({})", path.string(), what,
             error.message());
}

// A name that no other process or thread uses.
std::string unique_name(const char* what) {
  static std::atomic<int> counter{0};
  return fmt::format(".{}-{}-{}", what, ::getpid(), counter.fetch_add(1));
}

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail_cache(path, "make the directory", error);
}

// "../../blobs/HASH" with one more ".." for each directory in the file's path.
fs::path link_target(const RepoFile& file) {
  fs::path target = "../..";
  for (const char c : file.path)
    if (c == '/') target /= "..";
  return target / "blobs" / file.hash;
}

// Links (or links anew) a file in an existing directory, in one step.
void link_file(const fs::path& snapshot, const RepoFile& file) {
  const fs::path link = snapshot / file.path, target = link_target(file);
  std::error_code error;
  if (fs::is_symlink(link, error) && fs::read_symlink(link, error) == target) return;
  make_directories(link.parent_path());
  const fs::path fresh = link.parent_path() / unique_name("link");
  fs::create_symlink(target, fresh, error);
  if (error) fail_cache(fresh, "make the link", error);
  fs::rename(fresh, link, error);
  if (!error) return;
  std::error_code ignored;
  fs::remove(fresh, ignored);
  fail_cache(link, "make the link", error);
}

void write_ref(const fs::path& refs, const std::string& commit) {
  make_directories(refs);
  const fs::path fresh = refs / unique_name("main");
  std::ofstream out(fresh, std::ios::binary);
  out << commit;
  out.close();
  std::error_code error;
  if (out.fail())
    fail_param(ErrorCode::kIo, fresh.string(), "{}: cannot write the file", fresh.string());
  fs::rename(fresh, refs / "main", error);
  if (error) fail_cache(refs / "main", "replace the file", error);
}

}  // namespace

RepoCache::RepoCache(const fs::path& hf_cache, const std::string& repo) {
  std::string name = "models--" + repo;
  if (const size_t slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
  root_ = hf_cache / name;
  locks_ = hf_cache / ".locks" / name;
}

fs::path RepoCache::incomplete(const std::string& hash) const {
  return blobs() / (hash + ".incomplete");
}
fs::path RepoCache::snapshot(const std::string& commit) const {
  return root_ / "snapshots" / commit;
}
fs::path RepoCache::blob_lock(const std::string& hash) const { return locks_ / (hash + ".lock"); }
fs::path RepoCache::fetch_lock() const { return locks_ / "fetch.lock"; }

bool RepoCache::has(const RepoFile& file) const {
  if (file.hash.empty() || !file.size) return false;
  std::error_code error;
  const uint64_t bytes = fs::file_size(blob(file.hash), error);
  return !error && bytes == *file.size;
}

void RepoCache::publish(const std::string& commit, const std::vector<RepoFile>& files) const {
  const fs::path snapshots = root_ / "snapshots", wanted = snapshot(commit);
  make_directories(snapshots);
  std::error_code error;
  if (!fs::exists(wanted, error)) {
    // Beside snapshots/, where nobody looks for models, and as deep, so that the links hold.
    const fs::path own = root_ / unique_name("staging"), staging = own / commit;
    for (const RepoFile& file : files) link_file(staging, file);
    fs::rename(staging, wanted, error);
    std::error_code ignored;
    fs::remove_all(own, ignored);
    if (error && !fs::exists(wanted, ignored)) fail_cache(wanted, "make the snapshot", error);
    if (!error) return write_ref(root_ / "refs", commit);
  }
  // Into a snapshot that is there: what makes a directory a model comes last.
  std::vector<RepoFile> ordered = files;
  const auto config = std::find_if(ordered.begin(), ordered.end(),
                                   [](const RepoFile& file) { return file.path == "config.json"; });
  if (config != ordered.end()) std::rotate(config, config + 1, ordered.end());
  for (const RepoFile& file : ordered) link_file(wanted, file);
  write_ref(root_ / "refs", commit);
}

}  // namespace mantou::hub
