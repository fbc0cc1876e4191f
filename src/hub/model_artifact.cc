#include "hub/model_artifact.h"

#include "base/error.h"
#include "hub/artifact_base.h"
#include "hub/gguf_split.h"
#include "hub/json_file.h"
#include "hub/resolve.h"

namespace mantou::hub {

ArtifactBase::ArtifactBase(std::filesystem::path path)
    : path_(std::move(path)), name_(printable(model_name(path_))), tensors_(path_.string()) {}

const TokenizerSource& ArtifactBase::tokenizer() const {
  if (tokenizer_.tokenizer_json.empty() && !tokenizer_.gguf)
    fail_param(ErrorCode::kNotFound, path_.string(), "{}: the model has no {}", path_.string(),
               format() == Format::kGguf ? "vocabulary (tokenizer.ggml.tokens)" : "tokenizer.json");
  return tokenizer_;
}

std::vector<std::string> ArtifactBase::unused() const {
  const auto tied = config_.find("tie_word_embeddings");
  return tensors_.unused(tied != config_.end() && tied->is_boolean() && tied->get<bool>());
}

std::string model_name(const std::filesystem::path& path) {
  std::filesystem::path clean = std::filesystem::absolute(path).lexically_normal();
  if (!clean.has_filename()) clean = clean.parent_path();
  const auto snapshots = clean.parent_path();
  if (snapshots.filename() == "snapshots") {
    const std::string id = hf_repo_id(snapshots.parent_path().filename().string());
    if (!id.empty()) return id;
  }
  return clean.extension() == ".gguf" ? gguf_stem(clean) : clean.filename().string();
}

std::unique_ptr<ModelArtifact> ModelArtifact::open(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status))
    fail_param(ErrorCode::kNotFound, path.string(), "{}: no such file or directory", path.string());
  if (std::filesystem::is_directory(status)) return make_directory_artifact(path);
  return make_gguf_artifact(*GgufFile::open(path), path);
}

}  // namespace mantou::hub
