#include "hub/resolve.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>

#include "base/ascii.h"
#include "base/error.h"
#include "base/file.h"
#include "base/nearest.h"
#include "hub/gguf_split.h"
#include "hub/json_file.h"

namespace mantou::hub {
namespace {

namespace fs = std::filesystem;

fs::path environment_path(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? fs::path() : fs::path(value);
}

bool holds_directory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// .gguf files that are models, of a split one only the first part that is there.
std::vector<fs::path> gguf_files(const fs::path& directory) {
  std::vector<fs::path> out;
  std::set<std::pair<std::string, int>> split;
  for (const fs::path& path : children(directory)) {
    if (!is_gguf_model(path) || file_bytes(path) == 0) continue;
    const auto part = gguf_part(path);
    if (!part || split.emplace(part->model, part->count).second) out.push_back(path);
  }
  return out;
}

// All parts of a split model.
uint64_t gguf_bytes(const fs::path& file) {
  const auto part = gguf_part(file);
  if (!part) return file_bytes(file);
  uint64_t bytes = 0;
  for (int number = part->number; number <= part->count; ++number)
    bytes += file_bytes(gguf_sibling(file, *part, number));
  return bytes;
}

uint64_t safetensors_bytes(const fs::path& directory) {
  uint64_t bytes = 0;
  for (const fs::path& path : children(directory))
    if (path.extension() == ".safetensors") bytes += file_bytes(path);
  return bytes;
}

// Drafters propose tokens for another model and cannot run alone.
bool is_drafter(const fs::path& config_path) {
  try {
    const nlohmann::json config = read_json_file(config_path);
    if (!config.is_object()) return false;
    const auto type = config.find("model_type");
    if (type == config.end() || !type->is_string()) return false;
    const auto& text = type->get_ref<const std::string&>();
    return text.ends_with("_assistant") || text.ends_with("_mtp");
  } catch (const Error&) {
    return false;  // opening the model will say what is wrong with it
  }
}

// Whether all parts of a split model are there.
bool is_whole(const fs::path& file) {
  const auto part = gguf_part(file);
  for (int number = 1; part && number <= part->count; ++number)
    if (file_bytes(gguf_sibling(file, *part, number)) == 0) return false;
  return true;
}

// The .gguf models of a snapshot: whole ones, in it and in the directories that large repositories
// have for each quantization.
std::vector<fs::path> snapshot_gguf_files(const fs::path& snapshot) {
  std::vector<fs::path> out = gguf_files(snapshot);
  for (const fs::path& path : children(snapshot)) {
    if (!holds_directory(path)) continue;
    const std::vector<fs::path> files = gguf_files(path);
    out.insert(out.end(), files.begin(), files.end());
  }
  std::erase_if(out, [](const fs::path& file) { return !is_whole(file); });
  return out;
}

// The models of one directory: its safetensors checkpoint and each of `files`, which are .gguf.
void add_directory(const fs::path& directory, const std::string& group,
                   const std::vector<fs::path>& files, std::vector<ModelEntry>& out) {
  const uint64_t bytes = safetensors_bytes(directory);
  const bool whole =
      bytes > 0 && file_bytes(directory / "config.json") > 0 && has_all_shards(directory);
  if (whole && !is_drafter(directory / "config.json"))
    out.push_back({group, directory, Format::kDirectory, bytes, group});
  const bool alone = files.size() == 1 && !whole;
  for (const fs::path& file : files)
    out.push_back({alone ? group : fmt::format("{}:{}", group, gguf_stem(file)), file,
                   Format::kGguf, gguf_bytes(file), group});
}

bool looks_like_path(std::string_view name) {
  return name.starts_with('/') || name.starts_with("./") || name.starts_with("../") ||
         name.starts_with('~') || name.ends_with(".gguf");
}

std::string listed(const std::vector<ModelEntry>& entries) {
  constexpr size_t kLongest = 12;
  std::string out;
  for (size_t i = 0; i < std::min(entries.size(), kLongest); ++i)
    out += fmt::format("{}{}", i == 0 ? "" : ", ", entries[i].name);
  if (entries.size() > kLongest) out += fmt::format(" and {} more", entries.size() - kLongest);
  return out;
}

template <class... Args>
[[noreturn]] void fail_model(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  fail_param(code, "model", "{}", fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void fail_unknown(std::string_view name, const std::vector<ModelEntry>& all) {
  if (all.empty())
    fail_model(
        ErrorCode::kNotFound,
        "no model named \"{}\", and none on this machine; name a .gguf file, a model directory "
        "or a repository to fetch (org/name), or run scripts/run.sh for the starter model",
        printable(name));
  std::vector<std::string> names;
  for (const ModelEntry& entry : all) names.push_back(entry.name);
  fail_model(ErrorCode::kNotFound,
             "no model named \"{}\"{}; there are: {} (or name a .gguf file, a model directory or a "
             "repository to fetch, org/name)",
             printable(name), did_you_mean(name, names), listed(all));
}

// The entries of the one group that `query` names, exactly or in part.
std::vector<ModelEntry> matching_group(std::string_view query, const std::vector<ModelEntry>& all) {
  std::set<std::string> exact, partial;
  for (const ModelEntry& entry : all) {
    if (lower(entry.group) == lower(query)) exact.insert(entry.group);
    if (contains_in_any_case(entry.group, query)) partial.insert(entry.group);
  }
  const std::set<std::string>& groups = exact.empty() ? partial : exact;
  std::vector<ModelEntry> found;
  for (const ModelEntry& entry : all)
    if (groups.contains(entry.group)) found.push_back(entry);
  if (groups.size() > 1)
    fail_model(ErrorCode::kInvalidArgument,
               "\"{}\" could be any of these models: {}; give more of the name", printable(query),
               listed(found));
  return found;
}

// One of the entries of a group; `part` (may be empty) chooses among its .gguf files.
fs::path choose(std::string_view name, std::string_view part,
                const std::vector<ModelEntry>& entries) {
  std::vector<ModelEntry> left;
  for (const ModelEntry& entry : entries) {
    if (part.empty() && entry.format == Format::kDirectory) return entry.path;
    const std::string stem = gguf_stem(entry.path);
    if (!part.empty() && entry.format == Format::kGguf && lower(stem) == lower(part))
      return entry.path;
    if (part.empty() || (entry.format == Format::kGguf && contains_in_any_case(stem, part)))
      left.push_back(entry);
  }
  if (left.size() == 1) return left.front().path;
  if (left.empty())
    fail_model(ErrorCode::kNotFound, "{} has no .gguf file with \"{}\" in its name; there are: {}",
               entries.front().group, printable(part), listed(entries));
  fail_model(ErrorCode::kInvalidArgument, "\"{}\" has several files; choose one of: {}",
             printable(name), listed(left));
}

// The checkpoint at an existing path; empty when a directory holds none.
fs::path model_at(const fs::path& path) {
  if (!holds_directory(path) || file_bytes(path / "config.json") > 0) return path;
  const std::vector<fs::path> files = gguf_files(path);
  if (files.size() > 1) {
    std::string names;
    for (const fs::path& file : files)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", file.string());
    fail_model(ErrorCode::kInvalidArgument, "{} holds several models; choose one of: {}",
               path.string(), names);
  }
  return files.empty() ? fs::path() : files.front();
}

fs::path starter(const ModelPlaces& places) {
  const fs::path path = places.own / kStarterFile;
  if (file_bytes(path) == 0)
    fail_model(ErrorCode::kNotFound,
               "the starter model has not been fetched ({} is missing); run scripts/run.sh",
               path.string());
  return path;
}

}  // namespace

fs::path hf_home() {
  if (fs::path home = environment_path("HF_HOME"); !home.empty()) return home;
  fs::path cache = environment_path("XDG_CACHE_HOME");
  if (cache.empty()) cache = environment_path("HOME") / ".cache";
  return cache / "huggingface";
}

ModelPlaces ModelPlaces::from_environment() {
  ModelPlaces places;
  places.own = cache_directory() / "models";
  places.hf_cache = environment_path("HF_HUB_CACHE");
  if (places.hf_cache.empty()) places.hf_cache = hf_home() / "hub";
  return places;
}

fs::path current_snapshot(const fs::path& repository) {
  const fs::path snapshots = repository / "snapshots";
  const fs::path ref = repository / "refs" / "main";
  if (const uint64_t bytes = file_bytes(ref); bytes > 0 && bytes < 256) {
    std::string revision = read_file(ref, 256);
    while (!revision.empty() && std::isspace(static_cast<unsigned char>(revision.back())))
      revision.pop_back();
    if (!revision.empty() && revision.find('/') == std::string::npos &&
        holds_directory(snapshots / revision))
      return snapshots / revision;
  }
  fs::path newest;
  fs::file_time_type newest_time;
  for (const fs::path& snapshot : children(snapshots)) {
    std::error_code error;
    const auto time = fs::last_write_time(snapshot, error);
    if (error || !holds_directory(snapshot) || (!newest.empty() && time <= newest_time)) continue;
    newest = snapshot;
    newest_time = time;
  }
  return newest;
}

bool has_all_shards(const fs::path& directory) {
  for (const fs::path& path : children(directory)) {
    if (path.extension() != ".safetensors") continue;
    // The names of shards are those of GGUF parts but for the extension.
    fs::path as_gguf = path;
    const auto part = gguf_part(as_gguf.replace_extension(".gguf"));
    for (int number = 1; part && number <= part->count; ++number)
      if (file_bytes(gguf_sibling(as_gguf, *part, number).replace_extension(".safetensors")) == 0)
        return false;
  }
  return true;
}

std::string hf_repo_id(std::string_view directory_name) {
  constexpr std::string_view kPrefix = "models--";
  if (!directory_name.starts_with(kPrefix)) return {};
  std::string id(directory_name.substr(kPrefix.size()));
  if (const size_t split = id.find("--"); split != std::string::npos) id.replace(split, 2, "/");
  return id;
}

std::vector<ModelEntry> list_models(const ModelPlaces& places) {
  std::vector<ModelEntry> out;
  for (const fs::path& path : children(places.own))
    if (holds_directory(path)) add_directory(path, path.filename().string(), gguf_files(path), out);
  for (const fs::path& path : gguf_files(places.own))
    out.push_back({gguf_stem(path), path, Format::kGguf, gguf_bytes(path), gguf_stem(path)});
  for (const fs::path& repository : children(places.hf_cache)) {
    const std::string id = hf_repo_id(repository.filename().string());
    if (id.empty()) continue;
    const fs::path snapshot = current_snapshot(repository);
    if (!snapshot.empty()) add_directory(snapshot, id, snapshot_gguf_files(snapshot), out);
  }
  std::sort(out.begin(), out.end(),
            [](const ModelEntry& a, const ModelEntry& b) { return a.name < b.name; });
  return out;
}

fs::path resolve_model(std::string_view name, const ModelPlaces& places) {
  if (name.empty())
    fail_model(ErrorCode::kInvalidArgument,
               "no model was named; name a .gguf file, a model directory, or \"{}\"", kStarterName);
  if (name == kStarterName) return starter(places);
  std::error_code error;
  const bool path_exists = fs::exists(fs::path(name), error);
  if (path_exists) {
    const fs::path found = model_at(fs::path(name));
    if (!found.empty()) return found;
  }
  if (path_exists && looks_like_path(name))
    fail_model(ErrorCode::kNotFound, "{}: the directory holds no model (no config.json, no .gguf)",
               name);
  if (looks_like_path(name))
    fail_model(ErrorCode::kNotFound, "{}: no such file or directory", printable(name));

  const std::vector<ModelEntry> all = list_models(places);
  std::vector<ModelEntry> group = matching_group(name, all);
  if (!group.empty()) return choose(name, "", group);
  const size_t colon = name.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == name.size()) fail_unknown(name, all);
  group = matching_group(name.substr(0, colon), all);
  if (group.empty()) fail_unknown(name, all);
  return choose(name, name.substr(colon + 1), group);
}

}  // namespace mantou::hub
