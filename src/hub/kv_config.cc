#include "hub/kv_config.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "hub/config_reader.h"
#include "hub/json_file.h"

namespace mantou::hub {
namespace {

int one_of(const ConfigReader& entry, const char* key, std::initializer_list<int64_t> allowed,
           std::optional<int64_t> fallback) {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  const int64_t value = entry.get_int(key, -kAny, kAny, fallback);
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
    entry.fail_key(key, fmt::format("is {}, must be {}", value, fmt::join(allowed, " or ")));
  return int(value);
}

}  // namespace

std::vector<KvConfigEntry> parse_kv_config(const nlohmann::json& json, const std::string& origin,
                                           int layers) {
  if (!json.is_array())
    fail_param(ErrorCode::kCorruptData, "kv_config", "{}: must be a list of layers", origin);
  std::vector<KvConfigEntry> entries;
  std::vector<bool> seen(size_t(layers), false);
  for (size_t i = 0; i < json.size(); i++) {
    if (!json[i].is_object())
      fail_param(ErrorCode::kCorruptData, "kv_config", "{}: entry {} is no object", origin, i);
    const ConfigReader entry(json[i], fmt::format("{}: entry {}", origin, i));
    KvConfigEntry read;
    read.layer = int(entry.get_int("layer_idx", 0, layers - 1));
    read.bits = one_of(entry, "bits", {4, 8}, {});
    read.group = one_of(entry, "group_size", {32, 64, 128}, 64);
    if (seen[size_t(read.layer)])
      entry.fail_key("layer_idx", fmt::format("is {} again", read.layer));
    seen[size_t(read.layer)] = true;
    entries.push_back(read);
  }
  return entries;
}

std::optional<std::vector<KvConfigEntry>> read_kv_config(const std::filesystem::path& path,
                                                         int layers) {
  const std::filesystem::path file = path / "kv_config.json";
  if (!std::filesystem::is_directory(path) || !std::filesystem::exists(file)) return std::nullopt;
  return parse_kv_config(read_json_file(file), file.string(), layers);
}

}  // namespace mantou::hub
