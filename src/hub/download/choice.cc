#include "hub/download/choice.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/ascii.h"
#include "base/error.h"
#include "hub/gguf_split.h"
#include "hub/json_file.h"

namespace mantou::hub {
namespace {

namespace fs = std::filesystem;

// Best default first: four bits that keep most of the quality, then more bits, then fewer.
constexpr std::string_view kPreferred[] = {
    "Q4_K_M", "Q4_K_XL", "Q4_K_L", "Q4_K_S", "Q4_K", "IQ4_NL", "IQ4_XS", "Q4_1", "Q4_0",
    "MXFP4",  "Q5_K_M",  "Q5_K_S", "Q5_K",   "Q5_1", "Q5_0",   "Q6_K",   "Q8_0", "Q3_K_L",
    "Q3_K_M", "Q3_K_S",  "Q3_K",   "Q2_K_L", "Q2_K", "BF16",   "F16",    "FP16", "F32"};

// Besides *.safetensors and their index: what a directory checkpoint is read from, here or by other
// programs that share the cache.
constexpr std::string_view kDirectoryFiles[] = {
    "config.json",     "generation_config.json",  "tokenizer.json",     "tokenizer_config.json",
    "tokenizer.model", "special_tokens_map.json", "added_tokens.json",  "vocab.json",
    "merges.txt",      "chat_template.json",      "chat_template.jinja"};

// One GGUF model of a repository: a file, or all parts of one.
struct GgufModel {
  std::string stem;  // of the path: "UD-Q4_K_XL/model-Q4_K_XL"
  int parts = 1;
  std::vector<RepoFile> files;
};

bool is_word(char c) {
  const char l = lower(c);
  return (l >= 'a' && l <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

// Whether `word` stands in `text` with nothing that would make it a longer word on either side.
bool has_word(std::string_view text, std::string_view word) {
  const std::string t = lower(text), w = lower(word);
  for (size_t at = t.find(w); at != std::string::npos; at = t.find(w, at + 1)) {
    const size_t end = at + w.size();
    if ((at == 0 || !is_word(t[at - 1])) && (end == t.size() || !is_word(t[end]))) return true;
  }
  return false;
}

std::vector<GgufModel> gguf_models(const RepoListing& listing) {
  std::map<std::pair<std::string, int>, GgufModel> models;
  for (const RepoFile& file : listing.files) {
    const fs::path path(file.path);
    if (!is_gguf_model(path)) continue;
    const auto part = gguf_part(path);
    const std::string stem = (path.parent_path() / gguf_stem(path)).string();
    GgufModel& model = models[{stem, part ? part->count : 1}];
    model.stem = stem;
    model.parts = part ? part->count : 1;
    model.files.push_back(file);
  }
  std::vector<GgufModel> out;
  for (auto& [key, model] : models) {
    std::sort(model.files.begin(), model.files.end(),
              [](const RepoFile& a, const RepoFile& b) { return a.path < b.path; });
    out.push_back(std::move(model));
  }
  return out;
}

std::string listed(const std::vector<GgufModel>& models) {
  constexpr size_t kMost = 24;
  std::string out;
  for (size_t i = 0; i < std::min(models.size(), kMost); ++i)
    out += fmt::format("{}{}", i == 0 ? "" : ", ", printable(models[i].stem));
  if (models.size() > kMost) out += fmt::format(" and {} more", models.size() - kMost);
  return out;
}

std::vector<RepoFile> files_of(const RepoListing& listing, const GgufModel& model) {
  if (int(model.files.size()) != model.parts)
    fail_param(ErrorCode::kCorruptData, "model",
               "{}: {} has {} of its {} parts on the hub; choose another quantization",
               listing.repo, printable(model.stem), model.files.size(), model.parts);
  return model.files;
}

// The model whose name has `part`: as a word if any has it so, else anywhere.
std::vector<RepoFile> quantization(const RepoListing& listing, std::string_view part,
                                   const std::vector<GgufModel>& models) {
  std::vector<GgufModel> words, anywhere;
  for (const GgufModel& model : models) {
    const std::string name = fs::path(model.stem).filename().string();
    if (lower(name) == lower(part)) return files_of(listing, model);
    if (has_word(name, part)) words.push_back(model);
    if (contains_in_any_case(name, part)) anywhere.push_back(model);
  }
  const std::vector<GgufModel>& found = words.empty() ? anywhere : words;
  if (found.size() == 1) return files_of(listing, found.front());
  if (found.empty())
    fail_param(ErrorCode::kNotFound, "model",
               "{} has no file or quantization \"{}\"; there are: {}", listing.repo,
               printable(part), models.empty() ? "none" : listed(models));
  fail_param(ErrorCode::kInvalidArgument, "model",
             "{}: \"{}\" could be any of these: {}; give more of the name", listing.repo,
             printable(part), listed(found));
}

std::vector<RepoFile> directory_files(const RepoListing& listing) {
  std::vector<RepoFile> out;
  bool weights = false, config = false;
  for (const RepoFile& file : listing.files) {
    const std::string_view path = file.path;
    const bool tensors = path.find('/') == std::string_view::npos &&
                         path.ends_with(".safetensors") && !path.starts_with("consolidated") &&
                         !path.starts_with("adapter");
    const bool templates =
        path.starts_with("additional_chat_templates/") && path.ends_with(".jinja");
    const bool known = std::find(std::begin(kDirectoryFiles), std::end(kDirectoryFiles), path) !=
                       std::end(kDirectoryFiles);
    weights |= tensors;
    config |= path == "config.json";
    if (tensors || templates || known || path == "model.safetensors.index.json")
      out.push_back(file);
  }
  if (!weights || !config) return {};
  const auto first = std::find_if(out.begin(), out.end(),
                                  [](const RepoFile& file) { return file.path == "config.json"; });
  std::rotate(out.begin(), first, first + 1);
  return out;
}

}  // namespace

std::optional<RepoWish> parse_wish(std::string_view text) {
  constexpr std::string_view kHub = "https://huggingface.co/";
  if (text.starts_with(kHub)) text.remove_prefix(kHub.size());
  const size_t colon = text.find(':');
  RepoWish wish{std::string(text.substr(0, colon)), {}};
  if (colon != std::string_view::npos) {
    wish.part = text.substr(colon + 1);
    if (!is_safe_path(wish.part)) return std::nullopt;
  }
  if (!is_repo_id(wish.repo)) return std::nullopt;
  return wish;
}

std::optional<size_t> default_quantization(std::span<const std::string> stems) {
  if (stems.size() == 1) return 0;
  for (const std::string_view wanted : kPreferred) {
    std::optional<size_t> found;
    for (size_t i = 0; i < stems.size(); ++i) {
      if (!has_word(stems[i], wanted)) continue;
      if (found) return std::nullopt;
      found = i;
    }
    if (found) return found;
  }
  return std::nullopt;
}

std::vector<RepoFile> choose_files(const RepoListing& listing, std::string_view part) {
  const std::vector<GgufModel> models = gguf_models(listing);
  if (!part.empty()) {
    for (const GgufModel& model : models)  // any part of a model means all of them
      for (const RepoFile& file : model.files)
        if (file.path == part || fs::path(file.path).filename() == part)
          return files_of(listing, model);
    for (const RepoFile& file : listing.files)
      if (file.path == part) return {file};
    return quantization(listing, part, models);
  }
  if (auto files = directory_files(listing); !files.empty()) return files;
  if (models.empty())
    fail_param(ErrorCode::kUnsupported, "model",
               "{} holds no model that mantou reads: neither .gguf files nor config.json with "
               "safetensors; look for a GGUF or safetensors conversion of it",
               listing.repo);
  std::vector<std::string> names;
  for (const GgufModel& model : models) names.push_back(fs::path(model.stem).filename().string());
  const auto best = default_quantization(names);
  if (!best)
    fail_param(ErrorCode::kInvalidArgument, "model",
               "{} has several models and none is the obvious one; choose: {}:NAME of {}",
               listing.repo, listing.repo, listed(models));
  return files_of(listing, models[*best]);
}

}  // namespace mantou::hub
