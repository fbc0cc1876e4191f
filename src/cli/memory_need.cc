#include "cli/memory_need.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>

#include "cli/backends.h"
#include "cli/cache_options.h"
#include "cli/inspection_backend.h"
#include "hub/towers.h"
#include "models/registry.h"

namespace mantou::cli {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// One of the experts a router chooses among, in the names of checkpoints and of GGUF files.
bool is_routed_expert(std::string_view name) {
  return contains(name, ".experts.") || contains(name, ".switch_mlp.") || contains(name, "_exps.");
}

bool is_embedding(std::string_view name) {
  return contains(name, "embed_tokens") || contains(name, "token_embd") ||
         contains(name, "tok_embeddings");
}

// The share of the experts that a token runs through; 1 without experts.
double expert_share(const nlohmann::json& config) {
  const auto number = [&](const char* key) {
    const auto found = config.find(key);
    return found != config.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  const double experts = std::max(number("num_experts"), number("num_local_experts"));
  const double chosen = std::max(number("num_experts_per_tok"), number("top_k_experts"));
  return experts > 0 && chosen > 0 ? std::min(1.0, chosen / experts) : 1.0;
}

// Plain elements stay as they are, the elements of blocks become f32.
uint64_t bytes_decoded(const hub::ModelArtifact::TensorInfo& tensor) {
  if (tensor.type == "F32" || tensor.type == "F16" || tensor.type == "BF16") return tensor.bytes;
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), uint64_t{4},
                         std::multiplies<>());
}

bool has_own_head(const hub::ModelArtifact& artifact) {
  const bool has_head = artifact.has("lm_head.weight") || artifact.has("output.weight");
  return has_head && !artifact.config().value("tie_word_embeddings", false);
}

}  // namespace

uint64_t MemoryNeed::cache_bytes(int64_t tokens) const {
  uint64_t bytes = 0;
  for (const StateSpec& spec : states) {
    // In thirty-seconds of a byte, so that quantized elements (a code, and a scale and a bias for a
    // group) are whole numbers of them.
    const uint64_t plain = spec.type == KvType::kF32 ? 128 : 64;
    const uint64_t scale = typed_scales ? plain : 64;
    const uint64_t quantized =
        uint64_t(4 * spec.quant.bits) + 2 * scale / uint64_t(spec.quant.group);
    const auto size_of = [&](uint64_t element, int64_t count) {
      const int64_t held = spec.window > 0 ? std::min(count, spec.window) : count;
      return 2 * uint64_t(spec.kv_heads) * uint64_t(spec.head_dim) * element * uint64_t(held) / 32;
    };
    bytes += spec.quant.most_bytes(
        tokens, [&](int64_t count) { return size_of(plain, count); },
        [&](int64_t count) { return size_of(quantized, count); });
  }
  return bytes;
}

int64_t MemoryNeed::largest_context(uint64_t bytes) const {
  int64_t low = 0, high = train_context;  // low fits
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (cache_bytes(middle) <= bytes)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

MemoryNeed memory_need(const hub::ModelArtifact& artifact, const models::Model& model,
                       std::vector<StateSpec> states, bool on_mlx) {
  MemoryNeed need;
  need.states = std::move(states);
  need.typed_scales = on_mlx;
  const bool decodes = on_mlx && artifact.format() == hub::Format::kGguf;
  need.train_context = model.info().train_context;
  const double share = expert_share(artifact.config());
  const bool own_head = has_own_head(artifact);
  double read = 0;
  for (const auto& tensor : artifact.tensors()) {
    if (hub::is_of_tower(tensor.name)) continue;
    const uint64_t bytes = decodes ? bytes_decoded(tensor) : tensor.bytes;
    need.weights += bytes;
    if (is_embedding(tensor.name) && own_head) continue;
    read += double(bytes) * (is_routed_expert(tensor.name) ? share : 1.0);
  }
  need.read_per_token = uint64_t(read);
  return need;
}

MemoryNeed memory_need(hub::ModelArtifact& artifact, const ModelOptions& options) {
  const bool on_mlx = wants_mlx(options);
  const auto backend = make_inspection_backend(on_mlx);
  const auto model = models::load_model(artifact, *backend);
  auto states = state_specs(*model, *backend, options, artifact.path());
  return memory_need(artifact, *model, std::move(states), on_mlx);
}

}  // namespace mantou::cli
