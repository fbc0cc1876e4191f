#include "backends/mlx/experts.h"

#include <cmath>
#include <numbers>

#include "backends/mlx/linear.h"

namespace mantou::on_mlx {
namespace {

constexpr int kSorted = 64;  // choices from which on they are sorted by expert

array silu(const array& x) { return mx::multiply(x, mx::sigmoid(x)); }

array gelu_tanh(const array& x) {
  const array cube = mx::power(x, scalar(3, x));
  const array inner = times(std::sqrt(2 / std::numbers::pi), mx::add(x, times(0.044715, cube)));
  return mx::multiply(times(0.5, x), mx::add(scalar(1, x), mx::tanh(inner)));
}

array gelu_erf(const array& x) {
  const array part = mx::add(scalar(1, x), mx::erf(mx::divide(x, scalar(std::sqrt(2.0), x))));
  return mx::divide(mx::multiply(x, part), scalar(2, x));
}

array swiglu_oai(const array& gate, const array& up) {
  const array g = mx::minimum(gate, scalar(7, gate));
  const array u = mx::clip(up, scalar(-7, up), scalar(7, up));
  return mx::multiply(mx::add(u, scalar(1, u)), mx::multiply(g, mx::sigmoid(times(1.702, g))));
}

// One matrix of the experts that `indices` name.
array expert_linear(const array& x, const Linear& experts, int count, const array& indices,
                    bool sorted) {
  const ArrayStorage& w = storage_of(experts.weight);
  array y = w.mode.empty()
                ? mx::gather_mm(x, mx::swapaxes(w.value, -1, -2), std::nullopt, indices, sorted)
                : mx::gather_qmm(x, w.value, *w.scales, w.biases, std::nullopt, indices, true,
                                 w.group, w.bits, w.mode, std::nullopt, sorted);
  if (!experts.bias) return y;
  const array bias = mx::reshape(array_of(*experts.bias), {count, int(experts.weight.rows())});
  return mx::add(y, mx::expand_dims(mx::take(bias, indices, 0), -2));
}

// SwitchGLU: x [B, L, hidden], indices [B, L, k] -> [B, L, k, hidden].
array run_experts(const array& x, const Experts& experts, const array& indices) {
  array in = mx::expand_dims(x, {-2, -3});
  array chosen = indices;
  const bool sorted = indices.size() >= kSorted;
  std::optional<array> back;
  if (sorted) {
    const int k = indices.shape(-1);
    const array flat = mx::flatten(indices);
    const array order = mx::argsort(flat);
    back = mx::argsort(order);
    in = mx::take(mx::flatten(in, 0, -3), mx::floor_divide(order, array(k, order.dtype())), 0);
    chosen = mx::take(flat, order, 0);
  }
  const array up = expert_linear(in, experts.up, experts.count, chosen, sorted);
  const array gate = expert_linear(in, experts.gate, experts.count, chosen, sorted);
  array out = expert_linear(activate(experts.activation, gate, up), experts.down, experts.count,
                            chosen, sorted);
  if (sorted) out = mx::unflatten(mx::take(out, *back, 0), 0, indices.shape());
  return mx::squeeze(out, -2);
}

struct Choice {
  array indices, weights;  // [B, L, k]
};

array first_of(const array& x, int from, int to) {
  mx::Shape start(x.ndim(), 0), stop = x.shape();
  start.back() = from;
  stop.back() = to;
  return mx::slice(x, start, stop);
}

Choice choose(const array& scores, const MoeSpec& spec) {
  const bool of_chosen = spec.weights == MoeSpec::Weights::kOfChosen;
  const array values = of_chosen ? scores : mx::softmax(scores, -1, true);
  const int n = values.shape(-1), k = spec.top_k;
  const array indices = spec.from_front
                            ? first_of(mx::argpartition(mx::negative(values), k - 1, -1), 0, k)
                            : first_of(mx::argpartition(values, -k, -1), n - k, n);
  array weights = mx::take_along_axis(values, indices, -1);
  if (of_chosen) weights = mx::softmax(weights, -1, spec.wide_softmax);
  if (spec.weights == MoeSpec::Weights::kOfAllRenormalized)
    weights = mx::divide(weights, mx::sum(weights, -1, true));
  if (spec.expert_scale)
    weights = mx::multiply(weights, mx::take(array_of(*spec.expert_scale), indices, 0));
  return {indices, weights};
}

}  // namespace

array activate(Activation activation, const std::optional<array>& gate, const array& up) {
  const array& in = gate ? *gate : up;
  if (activation == Activation::kSwigluOai) return swiglu_oai(in, up);
  const array active = activation == Activation::kSilu       ? silu(in)
                       : activation == Activation::kGeluTanh ? gelu_tanh(in)
                                                             : gelu_erf(in);
  return gate ? mx::multiply(active, up) : active;
}

array mlp(const array& x, const Mlp& mlp) {
  const std::optional<array> gate = mlp.gate ? std::optional(linear(x, *mlp.gate)) : std::nullopt;
  return linear(activate(mlp.activation, gate, linear(x, mlp.up)), mlp.down);
}

array mixture(const array& x, const array& routed, const MoeSpec& spec) {
  const Choice choice = choose(linear(routed, spec.router), spec);
  const array each = run_experts(x, spec.experts, choice.indices);
  array y = mx::sum(mx::multiply(each, mx::expand_dims(choice.weights, -1)), -2);
  if (!spec.shared) return y;
  array shared = mlp(x, *spec.shared);
  if (spec.shared_gate) shared = mx::multiply(mx::sigmoid(linear(x, *spec.shared_gate)), shared);
  return mx::add(y, shared);
}

}  // namespace mantou::on_mlx
