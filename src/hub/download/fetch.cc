#include "hub/download/fetch.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "hub/download/file_lock.h"
#include "hub/json_file.h"
#include "hub/resolve.h"

namespace mantou::hub {
namespace {

namespace fs = std::filesystem;

uint64_t still_to_come(const RepoCache& cache, const RepoFile& file) {
  const uint64_t here = file_bytes(cache.incomplete(file.hash));
  return here > *file.size ? *file.size : *file.size - here;
}

// What to open of a snapshot with these files.
fs::path opened(const fs::path& snapshot, const std::vector<RepoFile>& files) {
  const fs::path first = snapshot / files.front().path;
  return first.extension() == ".gguf" ? first : snapshot;
}

std::unique_ptr<Transport> transport_for(const Endpoint& endpoint) {
  TransportOptions options;
  options.base = endpoint.url;
  return make_curl_transport(options);
}

}  // namespace

Fetcher::Fetcher(FetchOptions options, std::unique_ptr<Transport> transport)
    : options_(std::move(options)),
      transport_(transport ? std::move(transport) : transport_for(options_.endpoint)),
      client_(options_.endpoint, *transport_, options_.retry) {
  if (options_.endpoint.offline)
    fail_param(ErrorCode::kUnavailable, "offline",
               "nothing is fetched while --offline or HF_HUB_OFFLINE is set");
}

FetchPlan Fetcher::plan(const RepoWish& wish) {
  FetchPlan plan;
  plan.listing = client_.list(wish.repo);
  const RepoCache cache(options_.hf_cache, wish.repo);
  for (const RepoFile& chosen : choose_files(plan.listing, wish.part)) {
    const bool here = cache.has(chosen);
    RepoFile file = here ? chosen : client_.describe(wish.repo, plan.listing.commit, chosen);
    plan.bytes += *file.size;
    if (!cache.has(file)) {
      plan.missing_bytes += still_to_come(cache, file);
      plan.missing.push_back(file);
    }
    plan.files.push_back(std::move(file));
  }
  return plan;
}

void Fetcher::require_space(const FetchPlan& plan) const {
  std::error_code error;
  const fs::space_info space = fs::space(options_.hf_cache, error);
  if (error || space.available >= plan.missing_bytes + options_.keep_free) return;
  fail_param(
      ErrorCode::kResourceExhausted, "model",
      "{}: {} MiB are to come and {} MiB of the disk stay free, but {} has only {} MiB; make "
      "room (`mantou gc` shows what is unused) or set HF_HOME to another disk",
      plan.listing.repo, plan.missing_bytes >> 20, options_.keep_free >> 20,
      options_.hf_cache.string(), space.available >> 20);
}

fs::path Fetcher::fetch(const FetchPlan& plan, const FetchEvents& events) {
  const std::string& repo = plan.listing.repo;
  const RepoCache cache(options_.hf_cache, repo);
  std::error_code error;
  fs::create_directories(options_.hf_cache, error);
  if (error)
    fail_param(ErrorCode::kIo, options_.hf_cache.string(),
               "{}: cannot make the directory ({}); set HF_HOME to one that can be written",
               options_.hf_cache.string(), error.message());
  const FileLock in_use = FileLock::take(cache.fetch_lock(), FileLock::Mode::kShared, nullptr);
  require_space(plan);

  FetchProgress progress;
  progress.count = plan.missing.size();
  for (const RepoFile& file : plan.missing) progress.total += *file.size;
  uint64_t before = 0;
  for (const RepoFile& file : plan.missing) {
    progress.file = printable(file.path);
    ++progress.number;
    DownloadEvents of_file;
    of_file.note = events.note;
    of_file.have = [&](uint64_t bytes) {
      progress.done = before + bytes;
      if (events.progress) events.progress(progress);
    };
    download_blob(client_, cache, repo, plan.listing.commit, file, of_file);
    before += *file.size;
  }

  // Other files of this commit that are here stay visible when a commit is new.
  std::vector<RepoFile> linked = plan.files;
  for (const RepoFile& file : plan.listing.files) {
    const auto same = [&](const RepoFile& other) { return other.path == file.path; };
    if (cache.has(file) && std::none_of(plan.files.begin(), plan.files.end(), same))
      linked.push_back(file);
  }
  cache.publish(plan.listing.commit, linked);
  return opened(cache.snapshot(plan.listing.commit), plan.files);
}

fs::path find_fetched(const fs::path& hf_cache, const RepoWish& wish) {
  const fs::path snapshot = current_snapshot(RepoCache(hf_cache, wish.repo).root());
  if (snapshot.empty()) return {};
  RepoListing listing{wish.repo, {}, {}};
  std::error_code error;
  for (fs::recursive_directory_iterator at(snapshot, error), end; !error && at != end;
       at.increment(error))
    if (file_bytes(at->path()) > 0)
      listing.files.push_back({at->path().lexically_relative(snapshot).generic_string(), {}, {}});
  std::sort(listing.files.begin(), listing.files.end(),
            [](const RepoFile& a, const RepoFile& b) { return a.path < b.path; });
  try {
    const fs::path found = opened(snapshot, choose_files(listing, wish.part));
    return found == snapshot && !has_all_shards(snapshot) ? fs::path() : found;
  } catch (const Error&) {
    return {};  // the hub may have what is missing here
  }
}

}  // namespace mantou::hub
