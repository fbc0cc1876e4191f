// LayerState of the mlx backend: the rows of one layer in packs, each pack a set of rows that were
// forwarded together in shared planes.
//
// A step forwards the same number of tokens of each of its rows (Capabilities::uniform_steps). When
// its rows are not those of a pack they are packed anew, which copies them; while membership lasts
// nothing is copied. Engine thread.
#pragma once

#include "backends/mlx/kv_codec.h"
#include "backends/mlx/kv_ring_rows.h"
#include "tensor/layer_state.h"

namespace mantou::on_mlx {

class MlxLayerState : public LayerState {
 public:
  const KvCodec& codec() const { return codec_; }

  // Appends k and v [B, kv_heads, N, head_dim] of the open step; returns what attention reads.
  virtual Planes append(const array& keys, const array& values) = 0;
  // For the open step's tokens, before they are appended.
  virtual Mask mask(int64_t count, bool as_array) const = 0;
  // The arrays of the open step's pack, to be computed with it.
  virtual const Planes& planes() const = 0;
  // No way back from here but by positions: earlier planes are let go, so that appends can be
  // written in place.
  virtual void seal() = 0;

 protected:
  explicit MlxLayerState(KvCodec codec) : codec_(codec) {}
  KvCodec codec_;
};

std::unique_ptr<MlxLayerState> make_layer_state(const StateSpec& spec, KvCodec codec);

}  // namespace mantou::on_mlx
