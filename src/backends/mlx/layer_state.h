// LayerState of the mlx backend: the rows of one layer in packs, each pack a set of rows that were
// forwarded together in shared planes and are stored alike.
//
// A step forwards the same number of tokens of each of its rows (Capabilities::uniform_steps). When
// its rows are not those of a pack they are packed anew, which copies them; while membership lasts
// nothing is copied. Rows of a step of which some are quantized already and some not stay in two
// packs. A quantized layer converts rows when a step of theirs begins and they hold `start` tokens
// (any at all, for 0): one layer at a time, as mlx-lm does between its calls. Engine thread.
#pragma once

#include <map>

#include "backends/mlx/kv_codec.h"
#include "backends/mlx/kv_ring_rows.h"
#include "tensor/layer_state.h"

namespace mantou::on_mlx {

// Masks of a step by the positions they were made for: layers in the same position share one.
using MaskCache = std::map<std::vector<int64_t>, Mask>;

// What attention reads for some of a step's rows.
struct KvPart {
  std::vector<int> rows;  // places in the step
  KvCodec codec;
  Mask mask;
  Planes planes;
};

class MlxLayerState : public LayerState {
 public:
  // Appends k and v [B, kv_heads, N, head_dim] of the open step. `mask_as_array`: never "causal".
  virtual void append(const array& keys, const array& values, bool mask_as_array,
                      MaskCache& masks) = 0;
  // What the step's tokens see: all that was there and themselves, appended already. One part for
  // all rows, in order, where that is possible.
  virtual const std::vector<KvPart>& parts() const = 0;
  // The arrays of the open step's packs, to be computed with it.
  virtual Planes planes() const = 0;
  // No way back from here but by positions: earlier planes are let go, so that appends can be
  // written in place.
  virtual void seal() = 0;
};

// kUnsupported for a quantization that head_dim does not admit.
std::unique_ptr<MlxLayerState> make_layer_state(const StateSpec& spec);

}  // namespace mantou::on_mlx
