// A loaded model: weights packed by one backend and the forward pass over a flat batch.
//
// forward() returns hidden states before the final norm; the caller selects tokens and asks the
// backend's head for what it needs of them. Immutable after load; engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/stop_flag.h"
#include "tensor/backend.h"

namespace mantou {

namespace models {

struct ModelInfo {
  std::string architecture;  // model_type
  int vocab = 0;
  int64_t train_context = 0;  // max_position_embeddings
  bool mlx_lm_slides = true;  // mlx-lm has the sliding windows of this model too
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  virtual const Head& head() const = 0;

  // One state per cache-owning layer, in layer order; what the scheme decides is set by the caller.
  virtual std::vector<StateSpec> state_specs(KvType type) const = 0;

  // The same as mlx-lm has them: it ignores the windows of some families.
  std::vector<StateSpec> mlx_lm_state_specs(KvType type) const {
    std::vector<StateSpec> specs = state_specs(type);
    for (StateSpec& spec : specs)
      if (!info().mlx_lm_slides) spec.window = 0;
    return specs;
  }

  // Hidden states [T, hidden]. `stop` is polled between layers: an Error kCancelled leaves through
  // here and the caller aborts the step.
  virtual Tensor forward(Backend& backend, std::span<const int32_t> tokens,
                         std::span<const std::unique_ptr<LayerState>> states,
                         const StopFlag* stop) const = 0;
};

}  // namespace models
}  // namespace mantou
