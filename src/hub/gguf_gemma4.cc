// The keys are those of the conversion script of llama.cpp: sizes of full layers stand under the
// plain names, those of sliding layers under names that end in _swa; what differs between layers
// otherwise is an array with a number for each.
#include "hub/gguf_gemma4.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "hub/gguf_keys.h"

namespace mantou::hub {
namespace {

using nlohmann::json;

constexpr const char* kSharedLayers = "gemma4.attention.shared_kv_layers";
constexpr const char* kSliding = "gemma4.attention.sliding_window_pattern";
constexpr const char* kKeyHeads = "gemma4.attention.head_count_kv";
constexpr const char* kWidth = "gemma4.feed_forward_length";

struct Layers {
  std::vector<bool> slides;
  int64_t own = 0;  // the first layers, those with keys and values of their own
};

Layers read_layers(const GgufFile& file, int64_t count) {
  const std::vector<int64_t> flags = file.get_ints(kSliding);
  if (!file.has(kSliding)) fail_missing(file, kSliding);
  if (flags.size() != size_t(count))
    fail_param(ErrorCode::kCorruptData, kSliding, "{}: {} has {} elements for {} layers",
               file.origin(), kSliding, flags.size(), count);
  Layers layers;
  for (const int64_t flag : flags) layers.slides.push_back(flag != 0);
  const int64_t shared = file.get_int(kSharedLayers).value_or(0);
  if (shared < 0 || shared >= count)
    fail_param(ErrorCode::kCorruptData, kSharedLayers, "{}: {} is {}, must be 0 … {}",
               file.origin(), kSharedLayers, shared, count - 1);
  layers.own = count - shared;
  const auto own_end = layers.slides.begin() + layers.own;
  for (const bool slides : {false, true})
    if (std::find(own_end, layers.slides.end(), slides) != layers.slides.end() &&
        std::find(layers.slides.begin(), own_end, slides) == own_end)
      fail_param(ErrorCode::kCorruptData, kSharedLayers,
                 "{}: {} is {}, which leaves no {} layer whose keys the others could share",
                 file.origin(), kSharedLayers, shared, slides ? "sliding" : "full");
  return layers;
}

// The number that all layers have for which `is_meant` holds; none when there are no such layers.
template <class Predicate>
std::optional<int64_t> common(const GgufFile& file, const std::string& key,
                              const std::vector<int64_t>& values, Predicate is_meant) {
  std::optional<int64_t> found;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!is_meant(i)) continue;
    if (found && *found != values[i])
      fail_param(ErrorCode::kUnsupported, key,
                 "{}: {} is {} and {} in layers of one kind, which is not supported", file.origin(),
                 key, *found, values[i]);
    found = values[i];
  }
  return found;
}

// `key`, when it is there, must say what is the only thing supported.
void check_same(const GgufFile& file, const std::string& key, int64_t wanted) {
  const auto value = file.get_int(key);
  if (value && *value != wanted)
    fail_param(ErrorCode::kUnsupported, key, "{}: {} is {}, for heads of {} only that is supported",
               file.origin(), key, *value, wanted);
}

void set_heads(const GgufFile& file, json& config) {
  const int64_t full = require_int(file, "gemma4.attention.key_length", 1);
  const int64_t sliding = require_int(file, "gemma4.attention.key_length_swa", 1);
  check_same(file, "gemma4.attention.value_length", full);
  check_same(file, "gemma4.attention.value_length_swa", sliding);
  check_same(file, "gemma4.rope.dimension_count", full);
  check_same(file, "gemma4.rope.dimension_count_swa", sliding);
  config["global_head_dim"] = full;
  config["head_dim"] = sliding;
}

// A full layer without values of its own takes its keys for them, and only then has it another
// number of heads for keys than sliding layers.
void set_key_heads(const GgufFile& file, const Layers& layers, json& config) {
  const auto count = int64_t(layers.slides.size());
  const std::vector<int64_t> heads = layer_ints(file, kKeyHeads, count, 1);
  const auto sliding = common(file, kKeyHeads, heads, [&](size_t i) { return layers.slides[i]; });
  const auto full = common(file, kKeyHeads, heads, [&](size_t i) { return !layers.slides[i]; });
  const auto first_full = std::find(layers.slides.begin(), layers.slides.end(), false);
  const std::string values =
      fmt::format("blk.{}.attn_v.weight", first_full - layers.slides.begin());
  const bool keys_are_values = full && file.find_tensor(values) == nullptr;
  if (!keys_are_values && sliding && full && *sliding != *full)
    fail_param(ErrorCode::kUnsupported, kKeyHeads,
               "{}: {} is {} in sliding and {} in full layers that have values of their own, which "
               "is not supported",
               file.origin(), kKeyHeads, *sliding, *full);
  config["attention_k_eq_v"] = keys_are_values;
  config["num_key_value_heads"] = sliding ? *sliding : *full;
  config["num_global_key_value_heads"] = full ? *full : *sliding;
}

void set_widths(const GgufFile& file, const Layers& layers, json& config) {
  const auto count = int64_t(layers.slides.size());
  const std::vector<int64_t> widths = layer_ints(file, kWidth, count, 1);
  const auto is_own = [&](size_t i) { return int64_t(i) < layers.own; };
  const int64_t own = *common(file, kWidth, widths, is_own);
  const int64_t shared =
      common(file, kWidth, widths, [&](size_t i) { return !is_own(i); }).value_or(own);
  if (shared != own && shared != 2 * own)
    fail_param(ErrorCode::kUnsupported, kWidth,
               "{}: {} is {}, and {} in the layers that share keys; the same or twice as much is "
               "supported",
               file.origin(), kWidth, own, shared);
  config["intermediate_size"] = own;
  config["use_double_wide_mlp"] = shared != own;
}

// Of full layers a part of the head turns; the tensor's huge divisors hold the other still.
void set_ropes(const GgufFile& file, const Layers& layers, json& config) {
  config["rope_theta"] = require_double(file, "gemma4.rope.freq_base");
  config["rope_local_base_freq"] = require_double(file, "gemma4.rope.freq_base_swa");
  config["partial_rotary_factor"] = 1.0;
  const bool has_full =
      std::find(layers.slides.begin(), layers.slides.end(), false) != layers.slides.end();
  const std::string table = "rope_freqs.weight";
  if (has_full && file.find_tensor(table) == nullptr)
    fail_param(ErrorCode::kCorruptData, table, "{}: there is no tensor \"{}\"", file.origin(),
               table);
}

void set_experts(const GgufFile& file, json& config) {
  config["enable_moe_block"] = config.contains("num_experts");
  if (!config.contains("num_experts")) return;
  config["top_k_experts"] = require_int(file, "gemma4.expert_used_count", 1);
  config["moe_intermediate_size"] = require_int(file, "gemma4.expert_feed_forward_length", 1);
}

}  // namespace

void complete_gemma4(const GgufFile& file, json& config) {
  const Layers layers = read_layers(file, config["num_hidden_layers"].get<int64_t>());
  json& types = config["layer_types"] = json::array();
  for (const bool slides : layers.slides)
    types.push_back(slides ? "sliding_attention" : "full_attention");
  config.erase("sliding_window_pattern");
  config["num_kv_shared_layers"] = int64_t(layers.slides.size()) - layers.own;
  config["sliding_window"] = require_int(file, "gemma4.attention.sliding_window", 1);
  config["hidden_size_per_layer_input"] =
      require_int(file, "gemma4.embedding_length_per_layer_input", 0);
  if (!config.contains("final_logit_softcapping")) config["final_logit_softcapping"] = 0.0;
  set_heads(file, config);
  set_key_heads(file, layers, config);
  set_widths(file, layers, config);
  set_ropes(file, layers, config);
  set_experts(file, config);
}

}  // namespace mantou::hub
