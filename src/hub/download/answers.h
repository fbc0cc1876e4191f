// What the hub answers, read with suspicion: the listing of a repository, the headers that describe
// a file, ranges and delays. Pure functions; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/download/transport.h"

namespace mantou::hub {

struct RepoFile {
  std::string path;              // relative, "/" between its parts, checked: leads nowhere else
  std::optional<uint64_t> size;  // bytes
  std::string hash;              // of the contents, as Digest::like() reads it; empty: not said
};

struct RepoListing {
  std::string repo;    // "org/name"
  std::string commit;  // 40 hexadecimal digits
  std::vector<RepoFile> files;
};

// The answer to /api/models/REPO/revision/REV?blobs=true.
RepoListing parse_listing(const std::string& repo, std::string_view json);

// `file` with the size and hash that the answer to a HEAD request gives. Errors name the file: no
// checksum, no size, another commit than asked for, or other than the listing said.
RepoFile described_file(const std::string& repo, const std::string& commit, const RepoFile& file,
                        const HttpAnswer& answer);

struct ContentRange {
  uint64_t first = 0;
  std::optional<uint64_t> total;
};
std::optional<ContentRange> parse_content_range(std::string_view text);  // "bytes 5-9/10"

// Of a Retry-After header: seconds, or a date seen from `now`.
std::optional<std::chrono::seconds> parse_retry_after(std::string_view text,
                                                      std::chrono::system_clock::time_point now);

std::optional<uint64_t> parse_size(std::string_view text);  // decimal digits only

bool is_repo_id(std::string_view text);    // "org/name" or "name", as the hub allows it
bool is_safe_path(std::string_view text);  // may be joined to a directory
bool is_hash(std::string_view text);       // 40 or 64 lower-case hexadecimal digits

}  // namespace mantou::hub
