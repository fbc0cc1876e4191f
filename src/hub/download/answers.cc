#include "hub/download/answers.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <unordered_set>

#include "base/ascii.h"
#include "base/error.h"
#include "hub/json_file.h"

namespace mantou::hub {
namespace {

using nlohmann::json;

constexpr size_t kMostFiles = 100'000;
constexpr size_t kCommitDigits = 40, kSha256Digits = 64;

const json* member(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string text_member(const json& object, const char* key) {
  const json* value = member(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

std::optional<uint64_t> size_member(const json& object, const char* key) {
  const json* value = member(object, key);
  if (value == nullptr || !value->is_number_unsigned()) return std::nullopt;
  return value->get<uint64_t>();
}

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

RepoFile parse_sibling(const json& sibling) {
  RepoFile file;
  file.path = text_member(sibling, "rfilename");
  file.size = size_member(sibling, "size");
  file.hash = text_member(sibling, "blobId");
  if (const json* lfs = member(sibling, "lfs"); lfs != nullptr && lfs->is_object()) {
    file.hash = text_member(*lfs, "sha256");
    if (const auto size = size_member(*lfs, "size")) file.size = size;
  }
  if (!is_hash(file.hash)) file.hash.clear();
  return file;
}

// W/"abc" and "abc" → abc
std::string_view bare_etag(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"')
    etag = etag.substr(1, etag.size() - 2);
  return etag;
}

}  // namespace

bool is_hash(std::string_view text) {
  return is_hex(text, kCommitDigits) || is_hex(text, kSha256Digits);
}

bool is_repo_id(std::string_view text) {
  constexpr size_t kLongest = 96;
  const size_t slash = text.find('/');
  const auto good = [](std::string_view part) {
    return !part.empty() && part.front() != '.' && part.front() != '-' && part.back() != '.' &&
           part.back() != '-' && part.find("--") == std::string_view::npos &&
           part.find("..") == std::string_view::npos &&
           std::all_of(part.begin(), part.end(), [](char c) {
             const char l = lower(c);
             return (l >= 'a' && l <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                    c == '.';
           });
  };
  if (text.size() > kLongest) return false;
  if (slash == std::string_view::npos) return good(text);
  return good(text.substr(0, slash)) && good(text.substr(slash + 1));
}

bool is_safe_path(std::string_view text) {
  constexpr size_t kLongest = 1024, kLongestPart = 240;
  if (text.empty() || text.size() > kLongest) return false;
  for (const char c : text)
    if ((c >= 0 && c < ' ') || c == 0x7f || c == '\\') return false;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.size() > kLongestPart) return false;
    begin = end + 1;
  }
  return true;
}

std::optional<uint64_t> parse_size(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

RepoListing parse_listing(const std::string& repo, std::string_view text) {
  const json answer = parse_json(text, fmt::format("the hub's listing of {}", repo));
  RepoListing listing{repo, text_member(answer, "sha"), {}};
  const json* siblings = member(answer, "siblings");
  if (!is_hex(listing.commit, kCommitDigits) || siblings == nullptr || !siblings->is_array())
    fail_param(
        ErrorCode::kCorruptData, "model",
        "{}: the hub's answer lists no files (no \"sha\" or no \"siblings\"); is HF_ENDPOINT "
        "a Hugging Face hub?",
        repo);
  if (siblings->size() > kMostFiles)
    fail_param(ErrorCode::kResourceExhausted, "model",
               "{}: the repository has {} files, more than the limit of {}", repo, siblings->size(),
               kMostFiles);
  std::unordered_set<std::string> paths;
  for (const json& sibling : *siblings)
    if (RepoFile file = parse_sibling(sibling);
        is_safe_path(file.path) && paths.insert(file.path).second)
      listing.files.push_back(std::move(file));
  return listing;
}

RepoFile described_file(const std::string& repo, const std::string& commit, const RepoFile& file,
                        const HttpAnswer& answer) {
  const auto corrupt = [&](const std::string& what) {
    fail_param(ErrorCode::kCorruptData, file.path, "{}/{}: {}; try again, or another HF_ENDPOINT",
               repo, file.path, what);
  };
  RepoFile out = file;
  const std::string_view linked = answer.header("x-linked-etag");
  const std::string hash = lower(bare_etag(linked.empty() ? answer.header("etag") : linked));
  const std::string_view linked_size = answer.header("x-linked-size");
  const bool redirected = answer.status >= 300;  // then Content-Length is that of the redirect
  const auto size = parse_size(linked_size.empty() && !redirected ? answer.header("content-length")
                                                                  : linked_size);
  const std::string_view at = answer.header("x-repo-commit");
  if (!at.empty() && at != commit)
    corrupt(fmt::format("the hub answers for commit {} instead of {}", printable(at), commit));
  if (is_hash(hash)) out.hash = hash;
  if (size) out.size = size;
  if (out.hash.empty())
    corrupt("the hub gives no checksum (no ETag of 40 or 64 hexadecimal digits)");
  if (!out.size) corrupt("the hub does not say how long the file is");
  if (!file.hash.empty() && file.hash != out.hash)
    corrupt("the hub's listing and its file differ in their checksum");
  if (file.size && *file.size != *out.size)
    corrupt(fmt::format("the hub lists {} bytes and offers {}", *file.size, *out.size));
  return out;
}

std::optional<ContentRange> parse_content_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return std::nullopt;
  text.remove_prefix(kUnit.size());
  const size_t dash = text.find('-'), slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || dash > slash)
    return std::nullopt;
  const auto first = parse_size(text.substr(0, dash));
  const auto last = parse_size(text.substr(dash + 1, slash - dash - 1));
  const std::string_view total = text.substr(slash + 1);
  ContentRange range;
  range.total = parse_size(total);
  if (!first || !last || *first > *last || (!range.total && total != "*")) return std::nullopt;
  if (range.total && *last >= *range.total) return std::nullopt;
  range.first = *first;
  return range;
}

std::optional<std::chrono::seconds> parse_retry_after(std::string_view text,
                                                      std::chrono::system_clock::time_point now) {
  constexpr uint64_t kLongest = 1'000'000;
  if (const auto seconds = parse_size(text))
    return std::chrono::seconds(int64_t(std::min(*seconds, kLongest)));
  std::tm date{};
  const std::string copy(text);
  const char* end = ::strptime(copy.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &date);
  if (end == nullptr || *end != '\0') return std::nullopt;
  // In whole seconds: a far year does not fit the clock's own unit.
  const auto wait =
      std::chrono::seconds(int64_t(::timegm(&date)) - std::chrono::system_clock::to_time_t(now));
  return std::clamp(wait, std::chrono::seconds(0), std::chrono::seconds(int64_t(kLongest)));
}

}  // namespace mantou::hub
