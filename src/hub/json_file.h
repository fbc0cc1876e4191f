// JSON from outside: parsed with limits, so that no file can exhaust the stack or the memory.
//
// Used by hub/ for every JSON file of a checkpoint and for the header of safetensors files. Errors
// name the origin (a path) and the place. Stateless; any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace mantou::hub {

struct JsonLimits {
  size_t bytes = size_t{64} << 20;
  int depth = 64;                      // nested objects and arrays
  bool refuse_duplicate_keys = false;  // otherwise the last one counts, as in Python
};

nlohmann::json parse_json(std::string_view text, const std::string& origin,
                          const JsonLimits& limits = {});
nlohmann::json read_json_file(const std::filesystem::path& path, const JsonLimits& limits = {});

// `text` for an error message: control characters and broken UTF-8 become '?', long texts are cut.
std::string printable(std::string_view text);

}  // namespace mantou::hub
