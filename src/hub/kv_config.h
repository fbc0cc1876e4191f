// kv_config.json beside a checkpoint: which layers' keys and values its makers quantize, and how.
// Pure reading; any thread.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace mantou::hub {

struct KvConfigEntry {
  int layer = 0;   // index into the layers that own a cache
  int bits = 0;    // 4 or 8
  int group = 64;  // 32, 64 or 128
};

// The entries of [{"layer_idx": 0, "bits": 8, "group_size": 64}, …]. kCorruptData naming the entry
// for a layer named twice or at or above `layers`, and for other bits or groups.
std::vector<KvConfigEntry> parse_kv_config(const nlohmann::json& json, const std::string& origin,
                                           int layers);

// Of the model at `path` (a directory); empty when it has none.
std::optional<std::vector<KvConfigEntry>> read_kv_config(const std::filesystem::path& path,
                                                         int layers);

}  // namespace mantou::hub
