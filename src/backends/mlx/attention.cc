#include "backends/mlx/attention.h"

#include <limits>

namespace mantou::on_mlx {
namespace {

array lowest(mx::Dtype type) {
  if (type == mx::float16) return array(-65504.0f, type);
  if (type == mx::bfloat16) return array(-3.38953139e38f, type);
  return array(std::numeric_limits<float>::lowest(), type);
}

// Scores [B, (kv_heads, repeats | heads), L, S] under a mask.
array masked(const array& scores, const Mask& mask, bool grouped) {
  if (mask.mode.empty()) return scores;
  array allowed = [&] {
    if (mask.value) return *mask.value;
    const int rows = scores.shape(-2), columns = scores.shape(-1);
    return mx::greater_equal(mx::reshape(mx::arange(columns - rows, columns), {rows, 1}),
                             mx::reshape(mx::arange(columns), {1, columns}));
  }();
  if (grouped && allowed.ndim() > 3) allowed = mx::expand_dims(allowed, -3);
  return mx::where(allowed, scores, lowest(scores.dtype()));
}

// gemma2.py: scores are capped before the mask.
array softcapped(const array& q, const Planes& kv, const Mask& mask, const AttentionSpec& spec) {
  const int batch = q.shape(0), length = q.shape(2), repeats = spec.heads / spec.kv_heads;
  array queries = mx::multiply(q, scalar(spec.scale, q)), keys = kv[0], values = kv[1];
  if (repeats > 1) {
    queries = mx::reshape(queries, {batch, spec.kv_heads, repeats, length, spec.head_dim});
    keys = mx::expand_dims(keys, 2);
    values = mx::expand_dims(values, 2);
  }
  array scores = mx::matmul(queries, mx::swapaxes(keys, -1, -2));
  scores = mx::tanh(mx::divide(scores, scalar(spec.softcap, scores)));
  scores = masked(mx::multiply(scores, scalar(spec.softcap, scores)), mask, repeats > 1);
  array out = mx::matmul(mx::softmax(scores, -1, true), values);
  return repeats > 1 ? mx::reshape(out, {batch, spec.heads, length, spec.head_dim}) : out;
}

// Of scores [B, (kv_heads, repeats | heads), L, S]; sinks [heads] are one more score of no value.
// optiq/runtime/kv/rotating.py: mlx-lm itself has no quantized form with sinks.
array softmax_with_sinks(const array& scores, const array& sinks, mx::Dtype type) {
  mx::Shape heads(scores.shape().begin() + 1, scores.shape().end());
  heads[heads.size() - 2] = heads[heads.size() - 1] = 1;
  const array sink = mx::reshape(mx::astype(sinks, mx::float32), heads);
  const array wide = mx::astype(scores, mx::float32);
  const array peak = mx::maximum(mx::max(wide, -1, true), sink);
  const array weights = mx::exp(mx::subtract(wide, peak));
  const array total = mx::add(mx::sum(weights, -1, true), mx::exp(mx::subtract(sink, peak)));
  return mx::astype(mx::divide(weights, total), type);
}

// quantized_scaled_dot_product_attention of mlx_lm/models/base.py.
array quantized(const array& q, const Planes& planes, const KvCodec& codec, const Mask& mask,
                const AttentionSpec& spec) {
  const int batch = q.shape(0), length = q.shape(2), repeats = spec.heads / spec.kv_heads;
  array queries = mx::multiply(q, scalar(spec.scale, q));
  Planes p = planes;
  if (repeats > 1) {
    queries = mx::reshape(queries, {batch, spec.kv_heads, repeats, length, spec.head_dim});
    for (array& plane : p) plane = mx::expand_dims(plane, -3);
  }
  array scores = mx::quantized_matmul(queries, p[0], p[1], p[2], true, codec.group, codec.bits);
  scores = masked(scores, mask, repeats > 1);
  scores = spec.sinks ? softmax_with_sinks(scores, array_of(*spec.sinks), q.dtype())
                      : mx::softmax(scores, -1, true);
  const array out = mx::quantized_matmul(scores, p[3], p[4], p[5], false, codec.group, codec.bits);
  return repeats > 1 ? mx::reshape(out, {batch, spec.heads, length, spec.head_dim}) : out;
}

}  // namespace

array attention(const array& q, const Planes& planes, const KvCodec& codec, const Mask& mask,
                const AttentionSpec& spec) {
  using Widen = AttentionSpec::Widen;
  const bool wide =
      spec.widen == Widen::kAlways || (spec.widen == Widen::kF16 && q.dtype() == mx::float16);
  const array queries = wide ? mx::astype(q, mx::float32) : q;
  if (!codec.plain()) {
    if (spec.softcap <= 0 && spec.widen != Widen::kAlways)
      return mx::astype(quantized(queries, planes, codec, mask, spec), q.dtype());
    const auto decoded = [&](size_t first) {
      return mx::dequantize(planes[first], planes[first + 1], planes[first + 2], codec.group,
                            codec.bits);
    };
    return attention(q, {decoded(0), decoded(3)}, {}, mask, spec);
  }
  if (spec.softcap > 0) return softcapped(q, planes, mask, spec);
  const std::optional<array> sinks =
      spec.sinks ? std::optional(array_of(*spec.sinks)) : std::nullopt;
  const array keys = wide ? mx::astype(planes[0], mx::float32) : planes[0];
  const array out = mx::fast::scaled_dot_product_attention(queries, keys, planes[1], spec.scale,
                                                           mask.mode, mask.value, sinks);
  return wide ? mx::astype(out, planes[1].dtype()) : out;
}

}  // namespace mantou::on_mlx
