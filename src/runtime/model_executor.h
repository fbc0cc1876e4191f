// The Executor of a real model on a real backend: rows, their states, and the states of prompts
// that others may begin with. One engine thread calls it.
#pragma once

#include <memory>

#include "engine/executor.h"
#include "models/model.h"
#include "tensor/backend.h"

namespace mantou::runtime {

struct ExecutorOptions {
  std::string model_id;
  int64_t context = 0;            // tokens a row may hold; 0: what the checkpoint was made for
  std::vector<StateSpec> states;  // of the model's layers
  int max_rows = 8;
  uint64_t prefix_cache_bytes = uint64_t{2} << 30;  // 0: nothing is kept
  std::vector<TokenId> end_ids;
};

std::unique_ptr<Executor> make_model_executor(std::unique_ptr<Backend> backend,
                                              std::unique_ptr<models::Model> model,
                                              const ExecutorOptions& options);

}  // namespace mantou::runtime
