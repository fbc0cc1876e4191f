// Typed access to a config.json (or its equivalent): every value is checked for kind and range.
//
// Errors name file and key: "model/config.json: hidden_size is -3, must be 1 … 1048576". A null is
// the same as an absent key. Reads a json that must outlive the reader; any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mantou::hub {

class ModelArtifact;

class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& json, std::string origin);

  const std::string& origin() const { return origin_; }
  bool has(std::string_view key) const { return find(key) != nullptr; }

  bool has_string(std::string_view key) const;

  // Whole numbers; 8.0 counts as 8. Without a default an absent key is an error.
  int64_t get_int(std::string_view key, int64_t min, int64_t max,
                  std::optional<int64_t> fallback = {}) const;
  // Finite numbers.
  double get_double(std::string_view key, double min, double max,
                    std::optional<double> fallback = {}) const;
  bool get_bool(std::string_view key, std::optional<bool> fallback = {}) const;
  std::string get_string(std::string_view key, std::optional<std::string> fallback = {}) const;

  // Arrays of at most `longest` elements; empty when the key is absent. A single number counts as
  // an array of one.
  std::vector<int64_t> get_int_array(std::string_view key, int64_t min, int64_t max,
                                     size_t longest) const;
  std::vector<double> get_double_array(std::string_view key, double min, double max,
                                       size_t longest) const;
  std::vector<std::string> get_string_array(std::string_view key, size_t longest) const;

  // A nested object ("rope_scaling"); its errors say "rope_scaling.factor". Empty when absent.
  std::optional<ConfigReader> get_object(std::string_view key) const;

  // For checks between keys: "model/config.json: <key> <what>".
  [[noreturn]] void fail_key(std::string_view key, std::string_view what) const;

 private:
  const nlohmann::json* find(std::string_view key) const;
  const nlohmann::json& array(std::string_view key, size_t longest) const;
  int64_t to_int(const nlohmann::json& value, std::string_view key, int64_t min, int64_t max) const;
  double to_double(const nlohmann::json& value, std::string_view key, double min, double max) const;

  const nlohmann::json* json_;
  std::string origin_;
  std::string prefix_;  // "rope_scaling." inside a nested object
};

// The readers of artifact.config() and artifact.generation_config(), named after the file these
// came from.
ConfigReader config_reader(const ModelArtifact& artifact);
ConfigReader generation_config_reader(const ModelArtifact& artifact);

}  // namespace mantou::hub
