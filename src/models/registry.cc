#include "models/registry.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest.h"
#include "hub/config_reader.h"
#include "hub/json_file.h"
#include "hub/towers.h"
#include "models/families.h"

namespace mantou::models {
namespace {

constexpr Family kFamilies[] = {
    {"llama", "Llama 2 and 3, SmolLM 1 and 2, TinyLlama, Yi, MiniCPM5", load_llama},
    {"mistral", "Mistral 7B, Nemo, Small; text of Mistral Small 3.1", load_llama},
    {"ministral", "Ministral 8B", load_llama},
    {"iquestcoder", "IQuest Coder", load_llama},
    {"qwen2", "Qwen 1.5, 2, 2.5; QwQ; DeepSeek R1 distilled into Qwen", load_qwen2},
    {"qwen2_vl", "text of Qwen2-VL", load_qwen2},
    {"qwen2_vl_text", "text of Qwen2-VL", load_qwen2},
    {"qwen2_5_vl", "text of Qwen2.5-VL", load_qwen2},
    {"qwen2_5_vl_text", "text of Qwen2.5-VL", load_qwen2},
    {"qwen3", "Qwen3 dense", load_qwen3},
    {"gemma", "Gemma 1, CodeGemma", load_gemma},
    {"gemma2", "Gemma 2", load_gemma2},
    {"gemma3_text", "Gemma 3 270M and 1B", load_gemma3},
    {"gemma3", "text of Gemma 3 4B to 27B", load_gemma3},
    {"gemma4_text", "Gemma 4, text alone", load_gemma4},
    {"gemma4", "text of Gemma 4", load_gemma4},
    {"phi3", "Phi-3, Phi-3.5, Phi-4", load_phi3},
    {"olmo2", "OLMo 2", load_olmo2},
    {"olmo3", "OLMo 3", load_olmo3},
    {"exaone4", "EXAONE 4", load_exaone4},
    {"smollm3", "SmolLM3", load_smollm3},
    {"granite", "Granite 3", load_granite},
    {"starcoder2", "StarCoder2", load_starcoder2},
    {"glm4", "GLM-4 0414", load_glm4},
    {"cohere2", "Command R7B, Command A", load_cohere2},
    {"stablelm", "StableLM 2, StableLM Zephyr", load_stablelm},
    {"minicpm", "MiniCPM 1 and 2", load_minicpm},
    {"seed_oss", "Seed-OSS", load_seed_oss},
    {"ernie4_5", "ERNIE 4.5 0.3B", load_ernie4_5},
    {"hunyuan_v1_dense", "Hunyuan dense", load_hunyuan},
    {"internlm2", "InternLM 2 and 2.5", load_internlm2},
    {"internlm3", "InternLM 3", load_internlm3},
    {"qwen2_moe", "Qwen 1.5 and 2 with experts", load_qwen2_moe},
    {"qwen3_moe", "Qwen3 with experts", load_qwen3_moe},
    {"mixtral", "Mixtral", load_mixtral},
    {"olmoe", "OLMoE", load_olmoe},
    {"gpt_oss", "gpt-oss 20B and 120B", load_gpt_oss},
};

[[noreturn]] void fail_unknown(const hub::ModelArtifact& artifact, const std::string& type) {
  std::vector<std::string> known;
  for (const Family& family : kFamilies) known.emplace_back(family.model_type);
  fail_param(ErrorCode::kUnsupported, "model_type",
             "{}: architecture \"{}\" is not supported; supported are {}{}",
             artifact.path().string(), hub::printable(type), fmt::join(known, ", "),
             did_you_mean(type, known));
}

// Tensors that nobody took: those of towers are named and left out, others are an error.
void audit(const hub::ModelArtifact& artifact, const std::string& type) {
  std::vector<std::string> left, towers;
  for (const std::string& name : artifact.unused())
    (hub::is_of_tower(name) ? towers : left).push_back(name);
  if (!towers.empty())
    log_warn("tensors for images or sound are left out, the model reads text alone",
             {{"file", artifact.path().string()},
              {"tensors", towers.size()},
              {"first", towers.front()}});
  if (left.empty()) return;
  const size_t shown = std::min<size_t>(left.size(), 5);
  fail_param(ErrorCode::kCorruptData, left.front(),
             "{}: {} tensors are not part of a {} model: {}{}", artifact.path().string(),
             left.size(), type, fmt::join(left.begin(), left.begin() + ptrdiff_t(shown), ", "),
             left.size() > shown ? ", …" : "");
}

}  // namespace

std::span<const Family> families() { return kFamilies; }

std::unique_ptr<Model> load_model(hub::ModelArtifact& artifact, Backend& backend) {
  const std::string type = hub::config_reader(artifact).get_string("model_type");
  const auto family = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                   [&](const Family& f) { return f.model_type == type; });
  if (family == std::end(kFamilies)) fail_unknown(artifact, type);
  std::unique_ptr<Model> model = family->load(artifact, backend);
  audit(artifact, type);
  return model;
}

}  // namespace mantou::models
