// What the files of the mlx backend share: the alias of MLX's namespace, arrays inside Tensors and
// Weights, errors.
#pragma once

#include <mlx/mlx.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/raw_tensor.h"
#include "tensor/tensor.h"
#include "tensor/weight.h"

namespace mantou::on_mlx {

namespace mx = ::mlx::core;
using mx::array;

// Activations of a step: [B, L, cols], or [B, heads, L, head_dim] between heads() and attend().
inline Tensor make_tensor(int64_t rows, int64_t cols, array value) {
  return Tensor(rows, cols, std::make_shared<array>(std::move(value)));
}
inline const array& array_of(const Tensor& tensor) {
  return *static_cast<const array*>(tensor.storage());
}

// A weight as MLX holds it: dense, or words of codes with scales (and biases).
struct ArrayStorage final : WeightStorage {
  // Some of the rows, and the stream that computes with them.
  struct Part {
    array value;
    std::optional<array> scales, biases;
    mx::StreamOrDevice stream;
  };

  explicit ArrayStorage(array v) : value(std::move(v)) {}

  array value;
  std::optional<array> scales, biases;
  int bits = 0, group = 0;
  std::string mode;         // MLX's name; empty: dense
  std::vector<Part> parts;  // all rows once more, as views; empty: not split
};

inline const ArrayStorage& storage_of(const Weight& weight) {
  return *static_cast<const ArrayStorage*>(weight.storage());
}
// Of a dense weight.
inline const array& array_of(const Weight& weight) { return storage_of(weight).value; }

// A Python float beside an array: it takes the array's type and does not promote it.
inline array scalar(double value, const array& beside) {
  return array(float(value), beside.dtype());
}

inline array times(double factor, const array& x) { return mx::multiply(scalar(factor, x), x); }

// Computes the arrays now; what MLX throws becomes an Error.
void evaluate(std::vector<array> arrays);
// Begins to.
void start(std::vector<array> arrays);

}  // namespace mantou::on_mlx
