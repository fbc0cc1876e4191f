#include "backends/mlx/linear.h"

#include <algorithm>

namespace mantou::on_mlx {
namespace {

constexpr int kLeastRows = 32;  // of a part: fewer are done before another thread has heard of them

array rows_of(const array& matrix, int from, int to) {
  return mx::slice(matrix, {from, 0}, {to, matrix.shape(1)});
}

array product(const array& x, const ArrayStorage& w, const ArrayStorage::Part& part,
              const std::optional<array>& bias) {
  if (!w.mode.empty())
    return mx::quantized_matmul(x, part.value, *part.scales, part.biases, true, w.group, w.bits,
                                w.mode, part.stream);
  const array matrix = mx::transpose(part.value, part.stream);
  return bias ? mx::addmm(*bias, x, matrix, 1, 1, part.stream) : mx::matmul(x, matrix, part.stream);
}

// The outputs of all parts, side by side. Only a dense product takes its bias along.
array products(const array& x, const ArrayStorage& w, const std::optional<array>& bias) {
  if (w.parts.empty()) return product(x, w, {w.value, w.scales, w.biases, {}}, bias);
  std::vector<array> outs;
  int first = 0;
  for (const ArrayStorage::Part& part : w.parts) {
    const int next = first + part.value.shape(0);
    outs.push_back(product(x, w, part,
                           bias ? std::optional(mx::slice(*bias, {first}, {next})) : std::nullopt));
    first = next;
  }
  return mx::concatenate(std::move(outs), -1);
}

}  // namespace

Lanes make_lanes(int threads) {
  Lanes lanes{{}};
  if (mx::default_device() != mx::Device::cpu) return lanes;
  for (int i = 1; i < threads; i++) lanes.push_back(mx::new_thread_unsafe_stream(mx::Device::cpu));
  return lanes;
}

void split(ArrayStorage& matrix, const Lanes& lanes) {
  const int rows = matrix.value.shape(0);
  const int count = std::min(int(lanes.size()), rows / kLeastRows);
  if (count < 2) return;
  std::vector<array> views;
  for (int i = 0; i < count; i++) {
    const int from = int(int64_t{rows} * i / count), to = int(int64_t{rows} * (i + 1) / count);
    const auto part = [&](const std::optional<array>& whole) {
      if (!whole) return std::optional<array>();
      views.push_back(rows_of(*whole, from, to));
      return std::optional(views.back());
    };
    const array value = *part(matrix.value);
    const std::optional<array> scales = part(matrix.scales), biases = part(matrix.biases);
    matrix.parts.push_back({value, scales, biases, lanes[size_t(i)]});
  }
  evaluate(std::move(views));
}

array linear(const array& x, const Linear& linear) {
  const ArrayStorage& w = storage_of(linear.weight);
  const std::optional<array> bias =
      linear.bias ? std::optional(array_of(*linear.bias)) : std::nullopt;
  if (w.mode.empty()) return products(x, w, bias);
  const array y = products(x, w, std::nullopt);
  return bias ? mx::add(y, *bias) : y;
}

}  // namespace mantou::on_mlx
