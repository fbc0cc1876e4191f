// Rotary embeddings as configurations describe them.
#pragma once

#include "hub/config_reader.h"
#include "hub/model_artifact.h"
#include "tensor/weight.h"

namespace mantou::models {

inline constexpr int64_t kMaxPositions = int64_t{1} << 40;  // that a configuration may name

// Frequencies theta^(−2i / dims) for the first `dims` dimensions of a head.
Rope plain_rope(double theta, int dims);

// The rope of the configuration for heads of `head_dim`: rope_theta, partial_rotary_factor and
// rope_scaling of type default, linear, llama3, yarn, longrope or proportional (others are errors
// that name them). The tensors rope_freqs, rope_factors_long and rope_factors_short of GGUF files
// are taken where they are present.
Rope read_rope(hub::ModelArtifact& artifact, const hub::ConfigReader& config, int head_dim,
               double default_theta = 10000);

}  // namespace mantou::models
