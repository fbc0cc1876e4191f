// From GGUF's vocabulary to that of HF checkpoints: tensor names and metadata keys, by tables.
// Adding an architecture is a line of kArchitectures (gguf_architectures.cc) and the names it adds.
// Stateless; any thread.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "hub/gguf.h"

namespace mantou::hub {

// Of tensors without ".weight" or the like, or whole: a name with a dot.
struct NameRule {
  std::string_view gguf, hf;
};

struct GgufArchitecture {
  std::string_view name;                  // general.architecture
  std::string_view model_type;            // of config.json
  std::string_view activation;            // hidden_act
  std::span<const NameRule> block_names;  // beyond those that all have
  // Rows of Q and K (and their biases) are stored so that the two halves of each head interleave.
  bool interleaved_qk = false;
  bool norm_plus_one = false;  // (1 + w) norms, stored as 1 + w
  void (*complete)(const GgufFile& file, nlohmann::json& config) = nullptr;  // what no key says
  std::array<std::string_view, 3> also = {};        // further model_types with this name in files
  std::span<const std::string_view> own_keys = {};  // general keys that `complete` reads instead
};

std::span<const GgufArchitecture> gguf_architectures();

// The file's architecture; an unknown one is an error that lists those that are known.
const GgufArchitecture& gguf_architecture(const GgufFile& file);

// "blk.3.attn_q.weight" → "layers.3.self_attn.q_proj.weight". Unknown names stay as they are: the
// weight audit reports them.
std::string hf_tensor_name(const GgufArchitecture& architecture, std::string_view gguf_name);

nlohmann::json gguf_config(const GgufFile& file, const GgufArchitecture& architecture);
nlohmann::json gguf_generation_config(const GgufFile& file);

}  // namespace mantou::hub
