// What memory a model needs at a context, and which part of it one generated token reads: for
// `inspect` and `fit`. Arithmetic over the checkpoint's description; values, any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/options.h"
#include "hub/model_artifact.h"
#include "models/model.h"
#include "tensor/layer_state.h"

namespace mantou::cli {

struct MemoryNeed {
  uint64_t weights = 0;         // bytes in memory
  uint64_t read_per_token = 0;  // of them: no rows of a lookup table, only the experts in use
  std::vector<StateSpec> states;
  bool typed_scales = false;  // scales of a quantized cache are of its type, else of 16 bits
  int64_t train_context = 0;

  // Keys and values of one conversation of so many tokens.
  uint64_t cache_bytes(int64_t tokens) const;

  // The longest context, up to train_context, whose cache fits into `bytes`; 0 when none does.
  int64_t largest_context(uint64_t bytes) const;
};

// With the key/value cache that `states` describe. On cpu weights are as stored; mlx holds the
// blocks of GGUF files as f32.
MemoryNeed memory_need(const hub::ModelArtifact& artifact, const models::Model& model,
                       std::vector<StateSpec> states, bool on_mlx = false);

// With the backend and the cache that the options ask for; loads the model without computing, and
// what stands against loading it is thrown.
MemoryNeed memory_need(hub::ModelArtifact& artifact, const ModelOptions& options);

}  // namespace mantou::cli
