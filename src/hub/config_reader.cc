#include "hub/config_reader.h"

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "hub/json_file.h"
#include "hub/model_artifact.h"

namespace mantou::hub {
namespace {

using nlohmann::json;

// A value as it stands in a message.
std::string shown(const json& value) { return printable(to_text(value)); }

const json kEmptyArray = json::array();

// A GGUF file holds what are files of their own in a directory.
std::string origin_of(const ModelArtifact& artifact, const char* file) {
  const auto& path = artifact.path();
  return (artifact.format() == Format::kDirectory ? path / file : path).string();
}

}  // namespace

ConfigReader::ConfigReader(const json& json, std::string origin)
    : json_(&json), origin_(std::move(origin)) {
  if (!json_->is_object())
    fail_param(ErrorCode::kCorruptData, origin_, "{}: not a JSON object", origin_);
}

void ConfigReader::fail_key(std::string_view key, std::string_view what) const {
  const std::string name = prefix_ + std::string(key);
  fail_param(ErrorCode::kCorruptData, name, "{}: {} {}", origin_, name, what);
}

const json* ConfigReader::find(std::string_view key) const {
  const auto found = json_->find(key);
  return found == json_->end() || found->is_null() ? nullptr : &*found;
}

bool ConfigReader::has_string(std::string_view key) const {
  const json* value = find(key);
  return value != nullptr && value->is_string();
}

int64_t ConfigReader::to_int(const json& value, std::string_view key, int64_t min,
                             int64_t max) const {
  std::optional<int64_t> number;
  if (value.is_number_unsigned()) {
    if (const auto n = value.get<uint64_t>(); n <= uint64_t(INT64_MAX)) number = int64_t(n);
  } else if (value.is_number_integer()) {
    number = value.get<int64_t>();
  } else if (value.is_number_float()) {
    const auto n = value.get<double>();
    if (n == std::floor(n) && std::fabs(n) < 0x1p62) number = int64_t(n);
  }
  if (!number || *number < min || *number > max)
    fail_key(key, fmt::format("is {}, must be {}{} … {}", shown(value),
                              number ? "" : "a whole number ", min, max));
  return *number;
}

int64_t ConfigReader::get_int(std::string_view key, int64_t min, int64_t max,
                              std::optional<int64_t> fallback) const {
  if (const json* value = find(key)) return to_int(*value, key, min, max);
  if (!fallback) fail_key(key, "is missing");
  return *fallback;
}

double ConfigReader::to_double(const json& value, std::string_view key, double min,
                               double max) const {
  const double number = value.is_number() ? value.get<double>() : NAN;
  if (!(number >= min && number <= max) || !std::isfinite(number))
    fail_key(key, fmt::format("is {}, must be {}{} … {}", shown(value),
                              value.is_number() ? "" : "a number ", min, max));
  return number;
}

double ConfigReader::get_double(std::string_view key, double min, double max,
                                std::optional<double> fallback) const {
  const json* value = find(key);
  if (value != nullptr) return to_double(*value, key, min, max);
  if (!fallback) fail_key(key, "is missing");
  return *fallback;
}

bool ConfigReader::get_bool(std::string_view key, std::optional<bool> fallback) const {
  const json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr) fail_key(key, "is missing");
  if (!value->is_boolean())
    fail_key(key, fmt::format("is {}, must be true or false", shown(*value)));
  return value->get<bool>();
}

std::string ConfigReader::get_string(std::string_view key,
                                     std::optional<std::string> fallback) const {
  const json* value = find(key);
  if (value == nullptr && fallback) return *std::move(fallback);
  if (value == nullptr) fail_key(key, "is missing");
  if (!value->is_string()) fail_key(key, fmt::format("is {}, must be a string", shown(*value)));
  return value->get<std::string>();
}

const json& ConfigReader::array(std::string_view key, size_t longest) const {
  const json* value = find(key);
  if (value == nullptr) return kEmptyArray;
  if (!value->is_array()) fail_key(key, fmt::format("is {}, must be an array", shown(*value)));
  if (value->size() > longest)
    fail_key(key, fmt::format("has {} elements, more than {}", value->size(), longest));
  return *value;
}

std::vector<int64_t> ConfigReader::get_int_array(std::string_view key, int64_t min, int64_t max,
                                                 size_t longest) const {
  if (const json* value = find(key); value != nullptr && value->is_number())
    return {to_int(*value, key, min, max)};
  std::vector<int64_t> out;
  for (const json& value : array(key, longest))
    out.push_back(to_int(value, fmt::format("{}[{}]", key, out.size()), min, max));
  return out;
}

std::vector<double> ConfigReader::get_double_array(std::string_view key, double min, double max,
                                                   size_t longest) const {
  if (const json* value = find(key); value != nullptr && value->is_number())
    return {to_double(*value, key, min, max)};
  std::vector<double> out;
  for (const json& value : array(key, longest))
    out.push_back(to_double(value, fmt::format("{}[{}]", key, out.size()), min, max));
  return out;
}

std::vector<std::string> ConfigReader::get_string_array(std::string_view key,
                                                        size_t longest) const {
  std::vector<std::string> out;
  for (const json& value : array(key, longest)) {
    if (!value.is_string())
      fail_key(key, fmt::format("holds {} at {}, must hold strings", shown(value), out.size()));
    out.push_back(value.get<std::string>());
  }
  return out;
}

std::optional<ConfigReader> ConfigReader::get_object(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) fail_key(key, fmt::format("is {}, must be an object", shown(*value)));
  ConfigReader nested(*value, origin_);
  nested.prefix_ = fmt::format("{}{}.", prefix_, key);
  return nested;
}

ConfigReader config_reader(const ModelArtifact& artifact) {
  return ConfigReader(artifact.config(), origin_of(artifact, "config.json"));
}

ConfigReader generation_config_reader(const ModelArtifact& artifact) {
  return ConfigReader(artifact.generation_config(), origin_of(artifact, "generation_config.json"));
}

}  // namespace mantou::hub
