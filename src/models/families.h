// The loaders of registry.cc's table; one line a family file.
#pragma once

#include <memory>

#include "hub/model_artifact.h"
#include "models/model.h"

namespace mantou::models {

std::unique_ptr<Model> load_llama(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_qwen2(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_qwen3(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_gemma(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_gemma2(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_gemma3(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_gemma4(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_phi3(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_olmo2(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_olmo3(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_exaone4(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_smollm3(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_granite(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_starcoder2(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_glm4(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_cohere2(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_stablelm(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_minicpm(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_seed_oss(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_ernie4_5(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_hunyuan(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_internlm2(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_internlm3(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_qwen2_moe(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_qwen3_moe(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_mixtral(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_olmoe(hub::ModelArtifact& artifact, Backend& backend);
std::unique_ptr<Model> load_gpt_oss(hub::ModelArtifact& artifact, Backend& backend);

}  // namespace mantou::models
