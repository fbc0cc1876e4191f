// Weights as a backend holds them, and the small records models build from them. Immutable values,
// shared by copying; made while a model loads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace mantou {

// What a backend keeps of a weight; each backend derives its own.
struct WeightStorage {
  virtual ~WeightStorage() = default;
};

class Weight {
 public:
  Weight() = default;
  Weight(int64_t rows, int64_t cols, std::shared_ptr<const WeightStorage> storage)
      : rows_(rows), cols_(cols), storage_(std::move(storage)) {}

  int64_t rows() const { return rows_; }  // outputs; a vector has one row
  int64_t cols() const { return cols_; }  // inputs
  explicit operator bool() const { return storage_ != nullptr; }
  const WeightStorage* storage() const { return storage_.get(); }

 private:
  int64_t rows_ = 0, cols_ = 0;
  std::shared_ptr<const WeightStorage> storage_;
};

// How a weight will be used; decides the layout a backend packs it into.
enum class WeightUse {
  kMatrix,  // left operand of a product: y = W x
  kRouter,  // the same, computed in f32 whatever the type: a wrong expert is worse than a rounding
  kTable,   // only rows are looked up (embeddings)
  kVector,  // norm scales and biases: f32
};

// y = W x + bias.
struct Linear {
  Weight weight;
  std::optional<Weight> bias;
};

enum class NormKind { kRms, kLayer };

// kRms:   y = x / sqrt(mean(x²) + eps) · (scale, or scale + 1).
// kLayer: y = (x − mean(x)) / sqrt(var(x) + eps) · scale + bias.
struct Norm {
  Weight scale;            // empty: none
  float scale_factor = 1;  // of the scale
  float eps = 1e-6f;
  bool plus_one = false;
  NormKind kind = NormKind::kRms;
  std::optional<Weight> bias;  // kLayer only
};

// How the frequencies of a rope came about: for a backend that repeats the reference's arithmetic.
// Base frequencies theta^(−2i / dims), then by `kind`:
struct RopeRecipe {
  enum class Kind {
    kPlain,         // divided by `factor` (1, or that of "linear")
    kLlama3,        // by wavelength: factor, low, high, original
    kYarn,          // a ramp from dimension `low` to `high`: factor
    kFactors,       // divided by factors[i]
    kProportional,  // the first `rotated` dimensions divided by factor, the others do not turn
    kScaledBase,    // theta is scaled already; the reference makes a table of them
  };
  Kind kind = Kind::kPlain;
  double theta = 10000;
  int dims = 0;
  double factor = 1, low = 0, high = 0, original = 0;
  int rotated = 0;
  std::vector<float> factors;
};

// Rotary position embedding of the first `2 · inv_freq.size()` dimensions of a head: dimension i is
// paired with i + inv_freq.size(), or 2i with 2i + 1 (interleaved). Angle = position · inv_freq[i];
// what is rotated is also multiplied by `scale`. Scaling variants (linear, llama3, yarn, …) are
// folded into both when a model loads. Su et al., arXiv:2104.09864.
struct Rope {
  std::vector<double> inv_freq;
  float scale = 1;
  bool interleaved = false;
  RopeRecipe recipe;
};

// kSwigluOai: (min(max(u, −7), 7) + 1) · g · sigmoid(1.702 · g) with g = min(gate, 7), of gpt-oss.
enum class Activation { kSilu, kGeluTanh, kGeluErf, kSwigluOai };

// down(act(gate(x)) · up(x)); without a gate down(act(up(x))).
struct Mlp {
  std::optional<Linear> gate;
  Linear up, down;
  Activation activation = Activation::kSilu;
};

// How the result of a block joins the residual stream: residual + scale · post(result).
struct Join {
  std::optional<Norm> post;
  float scale = 1;
  bool clip_f16 = false;  // a sum in f16 is kept finite, on a backend that adds in it
};

struct MlpSpec {
  std::optional<Norm> pre;
  Mlp mlp;
  Join join;
};

// The matrices of all experts, each packed as one by Backend::pack_experts; biases are vectors of
// count · rows values.
struct Experts {
  int count = 0;
  Linear gate, up, down;
  Activation activation = Activation::kSilu;
};

// A mixture of experts: the router scores all, each token goes through its top_k of them (ties to
// the lowest index) and their results are summed with weights.
struct MoeSpec {
  // The weights of the chosen experts: their part of the softmax over all (the same made to sum to
  // 1), or the softmax over their scores. The last two are equal but for rounding.
  enum class Weights { kOfAll, kOfAllRenormalized, kOfChosen };

  std::optional<Norm> pre;
  std::optional<Norm> router_pre;  // what the router sees; else it sees what the experts see
  Linear router;
  int top_k = 1;
  Weights weights = Weights::kOfAll;
  // The reference takes the chosen from the front of a partition of the negated scores, or from the
  // back of one of the scores: the order in which results are summed there.
  bool from_front = true;
  bool wide_softmax = true;            // in f32, on a backend that computes in the types it stores
  std::optional<Weight> expert_scale;  // [experts]: factors of the chosen experts' weights
  Experts experts;
  std::optional<Mlp> shared;          // sees every token
  std::optional<Linear> shared_gate;  // one output; its sigmoid scales the shared expert
  Join join;
};

struct AttentionSpec {
  // What queries and keys are widened to, on a backend that computes in the types it stores.
  enum class Widen { kNothing, kF16, kAlways };

  int heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1;    // of the scores
  float softcap = 0;  // > 0: scores become cap · tanh(score / cap)
  Widen widen = Widen::kNothing;
  std::optional<Weight> sinks;  // [heads]: one more score per head, without a value
};

// A vector of `width` values that every layer gets for every token, beside the residual stream:
// (norm(projection(x) · projection_scale) + table[token] · table_scale) · scale, layer after layer.
struct LayerInputs {
  int width = 0;
  Weight table;  // [V, layers · width]
  float table_scale = 1;
  Linear projection;
  float projection_scale = 1;
  Norm norm;  // of each layer's part
  float scale = 1;
};

// How a layer takes its part in: x + post(projection(act(gate(x)) · part)).
struct LayerInputSpec {
  Linear gate, projection;
  Activation activation = Activation::kGeluTanh;
  Norm post;
};

// Final norm and output matrix; logits = softcap(W (norm(h) / input_divisor) · scale / divisor).
struct Head {
  Norm norm;
  Weight weight;
  float input_divisor = 1, scale = 1, divisor = 1;
  float softcap = 0;
};

}  // namespace mantou
