// From what a user types to a checkpoint on this machine, and the list of those there are.
//
// A name is a path, "starter", or (a part of) the name of a model in the HF cache or in mantou's
// own models directory. Reads directories anew on every call; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "hub/model_artifact.h"

namespace mantou::hub {

inline constexpr std::string_view kStarterName = "starter";
inline constexpr std::string_view kStarterFile = "SmolLM2-135M-Instruct.Q4_1.gguf";

// Where models are looked for.
struct ModelPlaces {
  std::filesystem::path hf_cache;  // holds models--org--name directories
  std::filesystem::path own;       // .gguf files and model directories

  // $HF_HUB_CACHE, $HF_HOME/hub or ~/.cache/huggingface/hub; cache_directory()/models.
  static ModelPlaces from_environment();
};

struct ModelEntry {
  std::string name;            // resolve_model() accepts it: "org/name", "org/name:model-Q4_K_M"
  std::filesystem::path path;  // ModelArtifact::open() accepts it
  Format format = Format::kGguf;
  uint64_t bytes = 0;  // of the weights
  std::string group;   // the repository (or own model) it belongs to: "org/name"
};

// All models found, by name; drafters that cannot run alone and incomplete snapshots are left out.
std::vector<ModelEntry> list_models(const ModelPlaces& places = ModelPlaces::from_environment());

// The one checkpoint `name` stands for: an existing path, "starter", a model's name or a unique
// part of one (upper or lower case), with ":PART" to choose among the .gguf files of a repository.
// Unknown and ambiguous names are errors that list the candidates and say what to do.
std::filesystem::path resolve_model(std::string_view name,
                                    const ModelPlaces& places = ModelPlaces::from_environment());

// $HF_HOME, or huggingface in $XDG_CACHE_HOME or in ~/.cache.
std::filesystem::path hf_home();

// Of a models--org--name directory: the snapshot that refs/main names, else the newest; empty when
// there is none.
std::filesystem::path current_snapshot(const std::filesystem::path& repository);

// Whether each shard of the directory's safetensors files that are one of several is there.
bool has_all_shards(const std::filesystem::path& directory);

// "models--org--name" → "org/name"; empty when it is no such name.
std::string hf_repo_id(std::string_view directory_name);

}  // namespace mantou::hub
