#include "models/registry.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest.h"
#include "hub/config_reader.h"
#include "models/families.h"

namespace mantou::models {
namespace {

struct Family {
  std::string_view model_type;  // config.json's model_type
  std::unique_ptr<Model> (*load)(hub::ModelArtifact& artifact, Backend& backend);
};

constexpr Family kFamilies[] = {
    {"llama", load_llama},  // also SmolLM, MiniCPM5 and others of that shape
    {"mistral", load_llama},
    {"ministral", load_llama},
    {"iquestcoder", load_llama},
    {"qwen2", load_qwen2},  // also Qwen2.5
    {"qwen3", load_qwen3},
    {"gemma", load_gemma},
    {"gemma2", load_gemma2},
    {"gemma3_text", load_gemma3},
    {"gemma3", load_gemma3},  // the text part
    {"phi3", load_phi3},      // also Phi-4
    {"olmo2", load_olmo2},
    {"exaone4", load_exaone4},
    {"smollm3", load_smollm3},
    {"granite", load_granite},
    {"starcoder2", load_starcoder2},
    {"glm4", load_glm4},
    {"cohere2", load_cohere2},
    {"stablelm", load_stablelm},
    {"minicpm", load_minicpm},
    {"seed_oss", load_seed_oss},
    {"ernie4_5", load_ernie4_5},
    {"hunyuan_v1_dense", load_hunyuan},
    {"internlm2", load_internlm2},
    {"internlm3", load_internlm3},
    {"qwen2_moe", load_qwen2_moe},
    {"qwen3_moe", load_qwen3_moe},
    {"mixtral", load_mixtral},
    {"olmoe", load_olmoe},
    {"gpt_oss", load_gpt_oss},
};

[[noreturn]] void fail_unknown(const hub::ModelArtifact& artifact, const std::string& type) {
  std::vector<std::string> known;
  for (const Family& family : kFamilies) known.emplace_back(family.model_type);
  fail_param(ErrorCode::kUnsupported, "model_type",
             "{}: architecture \"{}\" is not supported; supported are {}{}",
             artifact.path().string(), type, fmt::join(known, ", "), did_you_mean(type, known));
}

// Parts of checkpoints for images and sound, which a text model does without.
constexpr std::string_view kTowers[] = {"vision_tower.",         "vision_model.", "visual.",
                                        "embed_vision.",         "audio_tower.",  "embed_audio.",
                                        "multi_modal_projector."};

bool of_tower(std::string_view tensor) {
  return std::any_of(std::begin(kTowers), std::end(kTowers), [&](std::string_view tower) {
    const size_t at = tensor.find(tower);
    return at == 0 || (at != tensor.npos && tensor[at - 1] == '.');
  });
}

// Tensors that nobody took: those of towers are named and left out, others are an error.
void audit(const hub::ModelArtifact& artifact, const std::string& type) {
  std::vector<std::string> left, towers;
  for (const std::string& name : artifact.unused())
    (of_tower(name) ? towers : left).push_back(name);
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
