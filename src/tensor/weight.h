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
  kTable,   // only rows are looked up (embeddings)
  kVector,  // norm scales and biases: f32
};

// y = W x + bias.
struct Linear {
  Weight weight;
  std::optional<Weight> bias;
};

// RMS norm: y = x / sqrt(mean(x²) + eps) · (scale, or scale + 1).
struct Norm {
  Weight scale;
  float eps = 1e-6f;
  bool plus_one = false;
};

// Rotary position embedding of the first `2 · inv_freq.size()` dimensions of a head, half-rotated:
// dimension i is paired with i + inv_freq.size(). Angle = position · inv_freq[i]. Scaling variants
// (linear, llama3, …) are folded into inv_freq when a model loads. Su et al., arXiv:2104.09864.
struct Rope {
  std::vector<double> inv_freq;
};

enum class Activation { kSilu, kGeluTanh, kGeluErf };

// down(act(gate(n)) · up(n)) with n = pre-norm of x; `post` normalises the result before the
// residual.
struct MlpSpec {
  Norm pre;
  Linear gate, up, down;
  std::optional<Norm> post;
  Activation activation = Activation::kSilu;
};

struct AttentionSpec {
  int heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1;    // of the scores
  float softcap = 0;  // > 0: scores become cap · tanh(score / cap)
};

// Final norm and output matrix; logits = softcap(W norm(h)).
struct Head {
  Norm norm;
  Weight weight;
  float softcap = 0;
};

}  // namespace mantou
