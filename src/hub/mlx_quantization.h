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
  // As configured: what is absent is decided when a weight is made.
  struct Spec {
    std::optional<int64_t> bits, group;
    std::string mode;  // "" when absent
    bool quantized = true;
  };

  // From `quantization` or `quantization_config`; nothing is quantized when both are absent. The
  // method of another framework is an error that names it.
  static MlxQuantization parse(const nlohmann::json& config, std::string origin);

  // The weight of `module` from its parts, whose shapes are checked against each other and the
  // configuration. Bits, groups and modes that nothing here can decode are errors naming the
  // module.
  RawWeight weight(std::string_view module, const RawTensor& packed, const RawTensor& scales,
                   const RawTensor* biases) const;

 private:
  struct Resolved {
    QuantMode mode;
    int64_t bits, group;
  };
  Resolved resolve(std::string_view module, bool has_biases) const;

  std::string origin_;
  std::optional<Spec> default_;
  std::unordered_map<std::string, Spec> overrides_;  // by logical module name
};

}  // namespace mantou::hub
