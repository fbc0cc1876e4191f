// The loaders of registry.cc's table; one line a family file.
#pragma once

#include <memory>

#include "hub/model_artifact.h"
#include "models/model.h"

namespace mantou::models {

std::unique_ptr<Model> load_llama(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_qwen2(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_qwen3(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_gemma3(hub::ModelArtifact& artifact, Backend& backend);

}  // namespace mantou::models
