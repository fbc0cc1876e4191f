// The state of one layer for all live rows: the contract between models, runtime and backends.
//
// Rows are numbered 0 … rows() − 1 in every layer alike; membership operations keep them so. All
// operations are all-or-nothing: an Error leaves the state as it was. Appends happen inside a step
// (begin_step … commit_step or abort_step) and are invisible until committed. Engine thread only.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tensor/snapshot.h"
#include "tensor/step_layout.h"

namespace mantou {

// How keys and values are stored.
enum class KvType : uint8_t { kF16, kBF16, kF32 };
inline constexpr std::array<std::string_view, 3> kKvTypeNames{"f16", "bf16", "f32"};  // in order

// Quantization of keys and values: MLX's affine kind, scale · code + bias for groups along
// head_dim.
struct KvQuant {
  int bits = 0;       // 8 or 4; 0: none
  int group = 64;     // 32, 64 or 128 dimensions
  int64_t start = 0;  // a row is quantized as a whole when it holds so many tokens, then on append

  bool operator==(const KvQuant&) const = default;

  // The most bytes that a row holds on its way to so many tokens, from what so many take plain and
  // quantized: one that is quantized late was plain until then.
  template <class Plain, class Quantized>
  auto most_bytes(int64_t tokens, const Plain& plain, const Quantized& quantized) const {
    if (bits == 0 || tokens <= start) return plain(tokens);
    return std::max(plain(start), quantized(tokens));
  }
};

// What a layer's state looks like; equality decides who may join, share or restore.
struct StateSpec {
  int kv_heads = 0;
  int head_dim = 0;
  int64_t window = 0;  // > 0: a query sees the last `window` tokens, itself included
  KvType type = KvType::kF16;
  KvQuant quant = {};

  bool operator==(const StateSpec&) const = default;
  // "kv:full:f16:3x64", "kv:sliding:512:f16:1x256", "kv:full:f16:3x64:q8/64@5000"
  std::string signature() const;
};

class LayerState {
 public:
  virtual ~LayerState() = default;

  virtual const StateSpec& spec() const = 0;
  virtual int rows() const = 0;
  virtual int64_t tokens(int row) const = 0;                 // committed tokens
  virtual size_t bytes(int row) const = 0;                   // storage held, shared blocks included
  virtual size_t projected_bytes(int64_t tokens) const = 0;  // of a row with so many tokens

  // Tokens that may be appended before the row must be quantized as a whole: a longer append is
  // split there, so that this happens at the same token however its prompt was cut.
  virtual int64_t append_limit(int row) const = 0;

  // Membership; never inside a step or a round.
  virtual void add_row() = 0;                        // an empty row at the end
  virtual void join(LayerState&& other) = 0;         // other's rows at the end; same spec
  virtual void keep(std::span<const int> rows) = 0;  // these rows in this order, no doubles
  virtual std::unique_ptr<LayerState> fork(int row) const = 0;  // one-row state sharing full blocks

  // Drops the last `drop` tokens of a row; false (and nothing changed) when the layer cannot go
  // back so far: a sliding layer whose older tokens are gone, a row quantized when it was longer.
  virtual bool trim(int row, int64_t drop) = 0;

  // A step appends layout.rows[i].count tokens to state row layout.rows[i].state_row; position must
  // be the row's token count. Storage is reserved in begin_step, so appends cannot fail.
  virtual void begin_step(const StepLayout& layout) = 0;
  virtual void commit_step() = 0;
  virtual void abort_step() = 0;

  // Speculation: of what the steps of a round append, row r keeps the first kept[r] tokens, and is
  // then as if nothing else had been appended. A round never fails for want of a way back.
  virtual void begin_round() = 0;
  virtual void end_round(std::span<const int64_t> kept) = 0;

  // Not inside a step or a round. restore makes `row` what was saved; Error (kInvalidArgument) for
  // what is not a snapshot of such a state.
  virtual Snapshot snapshot(int row) const = 0;
  virtual void restore(int row, const Snapshot& saved) = 0;
};

}  // namespace mantou
