#include "models/registry.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/nearest.h"
#include "hub/config_reader.h"
#include "models/families.h"

namespace mantou::models {
namespace {

constexpr std::array<Family, 6> kFamilies = {{
    {"llama", "Llama, SmolLM, MiniCPM5 and others of that shape", load_llama},
    {"mistral", "Mistral (the llama layer)", load_llama},
    {"qwen2", "Qwen2, Qwen2.5", load_qwen2},
    {"qwen3", "Qwen3 dense", load_qwen3},
    {"gemma3_text", "Gemma 3, text", load_gemma3},
    {"gemma3", "Gemma 3, the text part", load_gemma3},
}};

[[noreturn]] void fail_unknown(const hub::ModelArtifact& artifact, const std::string& type) {
  std::vector<std::string> known;
  for (const Family& family : kFamilies) known.emplace_back(family.model_type);
  fail_param(ErrorCode::kUnsupported, "model_type",
             "{}: architecture \"{}\" is not supported; supported are {}{}",
             artifact.path().string(), type, fmt::join(known, ", "), did_you_mean(type, known));
}

}  // namespace

std::span<const Family> families() { return kFamilies; }

std::unique_ptr<Model> load_model(hub::ModelArtifact& artifact, Backend& backend) {
  const std::string type = hub::config_reader(artifact).get_string("model_type");
  const auto family = std::find_if(kFamilies.begin(), kFamilies.end(),
                                   [&](const Family& f) { return f.model_type == type; });
  if (family == kFamilies.end()) fail_unknown(artifact, type);
  std::unique_ptr<Model> model = family->load(artifact, backend);
  if (const std::vector<std::string> left = artifact.unused(); !left.empty())
    fail_param(
        ErrorCode::kCorruptData, left.front(), "{}: {} tensors are not part of a {} model: {}{}",
        artifact.path().string(), left.size(), type,
        fmt::join(left.begin(), left.begin() + ptrdiff_t(std::min<size_t>(left.size(), 5)), ", "),
        left.size() > 5 ? ", …" : "");
  return model;
}

}  // namespace mantou::models
