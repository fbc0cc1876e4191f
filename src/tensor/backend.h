// What a model may ask of a device: one function per model operation, coarse enough to fuse.
//
// The batch is flat: activations are [T, cols] with T = all tokens of the step, rows of the batch
// as StepLayout says. Residual stream and results are f32 on cpu. On cpu a token's result depends
// on its own row alone: not on the other tokens of the step, how a prompt was cut into chunks, or
// the number of threads (docs/determinism.md). All calls on the engine thread; pack() while a model
// loads.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/raw_tensor.h"
#include "tensor/layer_state.h"
#include "tensor/step_layout.h"
#include "tensor/tensor.h"
#include "tensor/weight.h"

namespace mantou {

// What the head shall compute for one token; nothing is computed for tokens without a request.
struct HeadRequest {
  enum class Want { kArgMax, kLogits };
  int token = 0;  // index into the flat batch
  Want want = Want::kArgMax;
};

struct Score {
  // Lowest index among equals; -1: the logits hold NaN, or their largest is not finite.
  int32_t arg_max = -1;
  std::span<float> logits;  // [V] for kLogits, valid until the next head or step; writable
};

// The arg-max tokens of a step whose device may still be at work on it.
class PendingTokens {
 public:
  virtual ~PendingTokens() = default;
  // As Score::arg_max, in the order of the requests. Error: what went wrong in the step.
  virtual std::vector<int32_t> wait() = 0;
};

// In place of the token of request i of the head_ahead before: `embed` looks up what that finds.
inline constexpr int32_t token_ahead(int i) { return -1 - i; }

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  // Names the arithmetic: equal ids promise equal bits for equal input.
  virtual std::string_view numerics_id() const = 0;
  // Rows of one step must forward equally many tokens.
  virtual bool uniform_steps() const { return false; }
  // Leaves out what nothing reads: most of the last layer while no logits are asked for.
  virtual bool lazy() const { return false; }
  // The type in which keys and values of the packed model are kept; nothing: StateSpecs say.
  virtual std::optional<KvType> own_kv_type() const { return std::nullopt; }

  // Takes a weight as stored into this backend's layout, without loss.
  virtual Weight pack(const RawWeight& raw, WeightUse use) = 0;
  // One matrix of every expert, all of the same shape and format -> rows() and cols() of one.
  virtual Weight pack_experts(std::span<const RawWeight> experts) = 0;
  virtual std::unique_ptr<LayerState> make_state(const StateSpec& spec) = 0;

  // Around every forward pass; the layout stays valid until end_step.
  virtual void begin_step(const StepLayout& layout) = 0;
  virtual void end_step() = 0;

  // Rows of `table` [V, d], times scale -> [T, d].
  virtual Tensor embed(const Weight& table, std::span<const int32_t> tokens, float scale) = 0;

  // n = pre ? norm(x) : x, computed once; out[i] = linears[i](n) -> [T, out_i].
  virtual std::vector<Tensor> project(const Tensor& x, const Norm* pre,
                                      std::span<const Linear* const> linears) = 0;

  // x [T, heads · head_dim]: optional norm of each head (its scale holds head_dim values for all
  // heads, or heads · head_dim), then optional rope at the rows' positions.
  virtual Tensor heads(Tensor x, int head_dim, const Norm* per_head, const Rope* rope) = 0;

  // Appends k and v [T, kv_heads · head_dim] to the rows' state, then each token of q
  // [T, heads · head_dim] attends to its row's tokens up to itself (within the state's window).
  // Empty k and v: another layer of this step has appended them.
  virtual Tensor attend(LayerState& state, const Tensor& q, const Tensor& k, const Tensor& v,
                        const AttentionSpec& spec) = 0;

  // linear(x) joined to `residual`, or alone when that is empty.
  virtual Tensor add_output(const Tensor& x, const Linear& linear, const Join& join,
                            const Tensor& residual) = 0;

  // mlp(pre(x)) joined to `residual`, which may be x itself or empty.
  virtual Tensor mlp(const Tensor& x, const MlpSpec& spec, const Tensor& residual) = 0;
  virtual Tensor moe(const Tensor& x, const MoeSpec& spec, const Tensor& residual) = 0;

  virtual Tensor add(const Tensor& a, const Tensor& b) = 0;
  // x times the one number of `factor`.
  virtual Tensor multiply(const Tensor& x, const Weight& factor) = 0;
  virtual Tensor join(const Tensor& x, const Join& join, const Tensor& residual) = 0;

  // -> [T, layers · width], for add_layer_input of each layer.
  virtual Tensor layer_inputs(const Tensor& x, std::span<const int32_t> tokens,
                              const LayerInputs& spec) = 0;
  virtual Tensor add_layer_input(const Tensor& x, const LayerInputSpec& spec, const Tensor& inputs,
                                 int layer) = 0;

  virtual std::vector<Score> head(const Tensor& hidden, const Head& head,
                                  std::span<const HeadRequest> requests) = 0;

  // As head, all requests for the arg-max, without waiting for the device: the next step may be
  // built on token_ahead(i) meanwhile. Null (and nothing done) where the device is the caller's own
  // thread.
  virtual std::unique_ptr<PendingTokens> head_ahead(const Tensor& /*hidden*/, const Head& /*head*/,
                                                    std::span<const HeadRequest> /*requests*/) {
    return nullptr;
  }
};

}  // namespace mantou
