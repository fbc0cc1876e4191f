// Which experts of a mixture each token goes through, and with what weight. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/weight.h"

namespace mantou::cpu {

// One token's part in an expert's work.
struct Assignment {
  int64_t token;
  float weight;
};

// For each expert, its tokens in order. `scores` [tokens, experts]: the router's results. A token's
// choice depends on its own scores alone; among equal scores the lower index wins, and scores that
// are NaN lose. Weights are computed in double.
std::vector<std::vector<Assignment>> route(std::span<const float> scores, const MoeSpec& spec);

}  // namespace mantou::cpu
