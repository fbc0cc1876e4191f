// Opening GGUF files, whole or in parts: the first part has the metadata, each has some of the
// tensors.
#include "hub/gguf_split.h"

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "base/ascii.h"
#include "base/error.h"
#include "base/file.h"
#include "hub/gguf.h"
#include "hub/json_file.h"

namespace mantou::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kDigits = 5;
constexpr std::string_view kOf = "-of-";
constexpr int64_t kMaxParts = 999;
constexpr size_t kMostNames = 16;

std::optional<int> digits(std::string_view text) {
  int value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool all =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!all || result.ec != std::errc() || result.ptr != text.data() + text.size())
    return std::nullopt;
  return value;
}

std::shared_ptr<const GgufFile> open_one(const fs::path& path) {
  auto file = MappedFile::open(path);
  const auto bytes = file->bytes();
  return GgufFile::parse(bytes, path.string(), std::move(file));
}

// `path` as a part of `count`, by name and by what the file says.
GgufPart checked_part(const fs::path& path, const GgufFile& file, int64_t count) {
  const int64_t number = file.get_int("split.no").value_or(-1) + 1;
  const auto part = gguf_part(path);
  if (number < 1 || number > count || count > kMaxParts)
    fail_param(ErrorCode::kCorruptData, path.string(),
               "{}: split.no {} and split.count {} name no part of at most {}", path.string(),
               number - 1, count, kMaxParts);
  if (!part || part->number != number || part->count != count)
    fail_param(ErrorCode::kInvalidArgument, path.string(),
               "{}: this is part {} of {}; to find the others, its name must end in "
               "-{:05}-of-{:05}.gguf, as theirs",
               path.string(), number, count, number, count);
  return *part;
}

// All parts have to lie beside `path`.
void require_siblings(const fs::path& path, const GgufPart& part) {
  std::string names;
  size_t missing = 0;
  for (int number = 1; number <= part.count; ++number) {
    const fs::path sibling = gguf_sibling(path, part, number);
    std::error_code error;
    if (fs::exists(sibling, error)) continue;
    if (++missing <= kMostNames)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", sibling.filename().string());
  }
  if (missing > kMostNames) names += fmt::format(" and {} more", missing - kMostNames);
  if (missing > 0)
    fail_param(ErrorCode::kNotFound, path.string(),
               "{}: {} of the model's {} parts are missing beside it: {}", path.string(), missing,
               part.count, printable(names));
}

}  // namespace

std::optional<GgufPart> gguf_part(const fs::path& file) {
  if (file.extension() != ".gguf") return std::nullopt;
  const std::string stem = file.stem().string();
  constexpr size_t kSuffix = 1 + 2 * kDigits + kOf.size();
  if (stem.size() <= kSuffix) return std::nullopt;
  const std::string_view suffix = std::string_view(stem).substr(stem.size() - kSuffix);
  const auto number = digits(suffix.substr(1, kDigits));
  const auto count = digits(suffix.substr(suffix.size() - kDigits));
  if (suffix.front() != '-' || suffix.substr(1 + kDigits, kOf.size()) != kOf || !number || !count ||
      *number < 1 || *number > *count || *count > kMaxParts)
    return std::nullopt;
  return GgufPart{stem.substr(0, stem.size() - kSuffix), *number, *count};
}

bool is_gguf_model(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  return file.extension() == ".gguf" && !contains_in_any_case(name, "mmproj") &&
         !contains_in_any_case(name, "imatrix");
}

fs::path gguf_sibling(const fs::path& file, const GgufPart& part, int number) {
  return file.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", part.model, number, part.count);
}

std::string gguf_stem(const fs::path& file) {
  const auto part = gguf_part(file);
  return part ? part->model : file.stem().string();
}

std::shared_ptr<const GgufFile> GgufFile::open(const fs::path& path) {
  auto file = open_one(path);
  const int64_t count = file->get_int("split.count").value_or(1);
  if (count <= 1) return file;
  const GgufPart part = checked_part(path, *file, count);
  require_siblings(path, part);

  std::shared_ptr<GgufFile> whole;
  std::unordered_set<std::string> names;
  for (int number = 1; number <= part.count; ++number) {
    const fs::path sibling = gguf_sibling(path, part, number);
    const auto opened = number == part.number ? file : open_one(sibling);
    if (opened->get_int("split.count") != count || opened->get_int("split.no") != number - 1)
      fail_param(ErrorCode::kCorruptData, sibling.string(),
                 "{}: the file does not say that it is part {} of {}", sibling.string(), number,
                 count);
    for (const char* key : {"general.architecture", "general.name"})
      if (whole != nullptr && opened->has(key) && opened->get_string(key) != whole->get_string(key))
        fail_param(ErrorCode::kCorruptData, sibling.string(),
                   "{}: {} is another than in the parts before it", sibling.string(), key);
    const char* const kTotal = "split.tensors.count";
    if (whole != nullptr && opened->has(kTotal) &&
        opened->get_int(kTotal) != whole->get_int(kTotal))
      fail_param(ErrorCode::kCorruptData, sibling.string(),
                 "{}: {} is another than in the parts before it", sibling.string(), kTotal);
    for (const RawTensor& tensor : opened->tensors())
      if (!names.insert(tensor.name).second)
        fail_param(ErrorCode::kCorruptData, sibling.string(),
                   "{}: tensor \"{}\" is also in a part before it", sibling.string(),
                   printable(tensor.name));
    if (whole == nullptr)
      whole = std::make_shared<GgufFile>(*opened);
    else
      whole->tensors_.insert(whole->tensors_.end(), opened->tensors_.begin(),
                             opened->tensors_.end());
  }
  const int64_t expected =
      whole->get_int("split.tensors.count").value_or(int64_t(whole->tensors_.size()));
  if (expected != int64_t(whole->tensors_.size()))
    fail_param(ErrorCode::kCorruptData, path.string(),
               "{}: the {} parts hold {} tensors, split.tensors.count says {}", path.string(),
               count, whole->tensors_.size(), expected);
  return whole;
}

}  // namespace mantou::hub
