// Which modules of an MLX checkpoint are quantized and how: `quantization` of config.json.
// Immutable once parsed; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/raw_tensor.h"

namespace mantou::hub {

class MlxQuantization {
 public:
  struct Spec {
    int64_t bits = 4, group = 64;
    std::string mode = "affine";
    bool quantized = true;
  };

  // From `quantization` or `quantization_config`; nothing is quantized when both are absent. The
  // method of another framework is an error that names it.
  static MlxQuantization parse(const nlohmann::json& config, std::string origin);

  // The weight of `module` from its three parts, whose shapes are checked against each other and
  // the configuration. Bits, groups and modes that nothing here can decode are errors naming the
  // module.
  RawWeight affine_weight(std::string_view module, const RawTensor& packed, const RawTensor& scales,
                          const RawTensor* biases) const;

 private:
  Spec supported_spec(std::string_view module) const;

  std::string origin_;
  std::optional<Spec> default_;
  std::unordered_map<std::string, Spec> overrides_;  // by logical module name
};

}  // namespace mantou::hub
