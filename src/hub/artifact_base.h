// What both kinds of artifact share, and how they are made: private to hub/.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "hub/gguf.h"
#include "hub/model_artifact.h"
#include "hub/tensor_table.h"

namespace mantou::hub {

class ArtifactBase : public ModelArtifact {
 public:
  const std::filesystem::path& path() const override { return path_; }
  const std::string& name() const override { return name_; }
  const nlohmann::json& config() const override { return config_; }
  const nlohmann::json& generation_config() const override { return generation_config_; }
  // A checkpoint without a vocabulary opens (its weights can be looked at) but fails here.
  const TokenizerSource& tokenizer() const override;
  bool has(std::string_view tensor) const override { return tensors_.find(tensor) != nullptr; }
  std::vector<std::string> unused() const override;
  std::vector<TensorInfo> tensors() const override { return tensors_.infos(); }

 protected:
  explicit ArtifactBase(std::filesystem::path path);

  std::filesystem::path path_;
  std::string name_;
  nlohmann::json config_ = nlohmann::json::object();
  nlohmann::json generation_config_ = nlohmann::json::object();
  TokenizerSource tokenizer_;
  TensorTable tensors_;
};

// "org/name" for a snapshot in the HF cache, else the last part of the path, without ".gguf".
std::string model_name(const std::filesystem::path& path);

std::unique_ptr<ModelArtifact> make_gguf_artifact(const GgufFile& file,
                                                  const std::filesystem::path& path);
std::unique_ptr<ModelArtifact> make_directory_artifact(const std::filesystem::path& path);

}  // namespace mantou::hub
