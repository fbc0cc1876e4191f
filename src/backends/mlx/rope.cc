#include "backends/mlx/rope.h"

#include <numbers>

namespace mantou::on_mlx {
namespace {

// base ** (arange(0, dims, 2) / denominator)
array powers(double base, int dims, int denominator) {
  const array steps = mx::astype(mx::arange(0, dims, 2), mx::float32);
  const array exponents = mx::divide(steps, array(float(denominator)));
  return mx::power(array(float(base)), exponents);
}

// Llama3RoPE of mlx_lm/models/rope_utils.py.
array llama3(const RopeRecipe& r) {
  const array freqs = powers(r.theta, r.dims, r.dims);
  const array lengths = times(2 * std::numbers::pi, freqs);
  const array longest = scalar(r.original / r.low, freqs);
  const array shortest = scalar(r.original / r.high, freqs);
  const array stretched =
      mx::where(mx::greater(lengths, longest), mx::multiply(freqs, scalar(r.factor, freqs)), freqs);
  const array medium = mx::logical_and(mx::greater(lengths, shortest), mx::less(lengths, longest));
  const array smooth =
      mx::divide(mx::subtract(mx::divide(scalar(r.original, freqs), lengths), scalar(r.low, freqs)),
                 scalar(r.high - r.low, freqs));
  const array share = mx::add(
      mx::divide(mx::subtract(scalar(1, smooth), smooth), scalar(r.factor, smooth)), smooth);
  return mx::where(medium, mx::divide(stretched, share), stretched);
}

// YarnRoPE; low and high are the ends of its ramp.
array yarn(const RopeRecipe& r) {
  const array extra = powers(r.theta, r.dims, r.dims);
  const array inter = times(r.factor, extra);
  const int pairs = r.dims / 2;
  const array index = mx::arange(pairs, mx::float32);
  const array ramp =
      mx::divide(mx::subtract(index, scalar(r.low, index)), scalar(r.high - r.low, index));
  const array clipped = mx::clip(ramp, scalar(0, ramp), scalar(1, ramp));
  const array mask = mx::subtract(scalar(1, clipped), clipped);
  return mx::divide(
      mx::multiply(inter, extra),
      mx::add(mx::multiply(inter, mask), mx::multiply(extra, mx::subtract(scalar(1, mask), mask))));
}

// ProportionalRoPE: what does not turn has an infinite period.
array proportional(const RopeRecipe& r) {
  const array turning = times(r.factor, powers(r.theta, r.rotated, r.dims));
  const array still =
      mx::full({(r.dims - r.rotated) / 2}, std::numeric_limits<float>::infinity(), mx::float32);
  return mx::concatenate({turning, still});
}

array table_of(const RopeRecipe& r) {
  switch (r.kind) {
    case RopeRecipe::Kind::kLlama3:
      return llama3(r);
    case RopeRecipe::Kind::kYarn:
      return yarn(r);
    case RopeRecipe::Kind::kFactors:
      return mx::multiply(array(r.factors.data(), {int(r.factors.size())}, mx::float32),
                          powers(r.theta, r.dims, r.dims));
    case RopeRecipe::Kind::kProportional:
      return proportional(r);
    case RopeRecipe::Kind::kPlain:
    case RopeRecipe::Kind::kScaledBase:
      break;
  }
  return powers(r.theta, r.dims, r.dims);
}

}  // namespace

RopeCall make_rope(const Rope& rope) {
  RopeCall call;
  call.dims = rope.recipe.dims;
  call.interleaved = rope.interleaved;
  call.multiplier = rope.scale;
  if (rope.recipe.kind == RopeRecipe::Kind::kPlain) {
    call.base = float(rope.recipe.theta);
    call.scale = float(1 / rope.recipe.factor);
  } else {
    call.freqs = table_of(rope.recipe);
    evaluate({*call.freqs});
  }
  return call;
}

array apply_rope(const RopeCall& rope, const array& x, const std::variant<int, array>& offset) {
  array in = x;
  if (rope.multiplier != 1) {
    mx::Shape start(x.ndim(), 0), stop = x.shape();
    stop.back() = rope.dims;
    const array part = mx::slice(x, start, stop);
    in = mx::slice_update(x, mx::multiply(part, scalar(rope.multiplier, part)), start, stop);
  }
  return std::visit(
      [&](const auto& at) {
        return mx::fast::rope(in, rope.dims, rope.interleaved, rope.base, rope.scale, at,
                              rope.freqs);
      },
      offset);
}

}  // namespace mantou::on_mlx
