// How the keys and values of each layer are stored, resolved once when a model is loaded. Pure
// functions.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hub/kv_config.h"
#include "tensor/layer_state.h"

namespace mantou::runtime {

struct KvScheme {
  enum class Kind {
    kOff,      // plain
    kUniform,  // every layer alike: bits, group
    kConfig,   // as the checkpoint's kv_config.json says; layers it does not name stay plain
  };
  Kind kind = Kind::kOff;
  int bits = 8;
  int group = 64;
  int64_t start = 0;  // tokens of a row that stay plain until it is quantized
};

// "off", "kv8", "kv4-32-5000" (group when not 64, start when not 0), "config", "config-5000".
std::string name_of(const KvScheme& scheme);

// The specs with their quantization. Errors: kUnsupported for heads that have no groups of that
// size, kNotFound for kConfig without a configuration.
std::vector<StateSpec> with_scheme(std::vector<StateSpec> specs, const KvScheme& scheme,
                                   const std::optional<std::vector<hub::KvConfigEntry>>& config);

// With the kv_config.json of the model at `path`, which is read where the scheme asks for it.
std::vector<StateSpec> with_scheme(std::vector<StateSpec> specs, const KvScheme& scheme,
                                   const std::filesystem::path& path);

}  // namespace mantou::runtime
