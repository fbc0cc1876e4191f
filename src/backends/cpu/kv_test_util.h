// For tests of KV states and attention: reproducible sequences, what a state's blocks hold, a pool
// full of NaN, and attention in float64 over the stored cells. Written from kv_block.h's
// description of a block, without the kernels' code.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kv_rows.h"
#include "base/half.h"
#include "base/thread_pool.h"

namespace mantou::cpu::test {

// About normal, a function of its arguments alone: whoever appends token t of a sequence, in
// whatever chunks, appends the same values.
inline float noise(uint64_t sequence, uint64_t token, uint64_t index) {
  uint64_t x = sequence * 0x9e3779b97f4a7c15u + token * 0xbf58476d1ce4e5b9u + index;
  float sum = 0;
  for (int i = 0; i < 4; i++) {  // splitmix64
    x += 0x9e3779b97f4a7c15u;
    uint64_t z = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    sum += float(int32_t(z ^ z >> 31)) * 0x1p-31f;
  }
  return sum * 0.866f;  // four uniform numbers in [−1, 1) have variance 4 / 3
}

// Tokens [first, first + count) of a sequence, `width` values each.
inline void append_noise(uint64_t sequence, int64_t first, int64_t count, int width,
                         std::vector<float>& to) {
  for (int64_t t = first; t < first + count; t++) {
    for (int i = 0; i < width; i++) to.push_back(noise(sequence, t, i));
  }
}

// What names the streams of a sequence.
enum Stream : uint64_t { kKeys = 1, kValues = 2, kQueries = 3 };
inline uint64_t stream(uint64_t sequence, Stream what) { return sequence * 4 + what; }

// The f32 value of a code in a quantized block, as kv_block.h describes it.
inline float stored_code(const KvBlockLayout& layout, const std::byte* block, int64_t slot,
                         int head, int dim, bool value) {
  const size_t dims = size_t(layout.head_dim), codes = 64 * dims * size_t(layout.bits) / 8;
  const size_t groups = dims / size_t(layout.group);
  const std::byte* section = block + size_t(head) * (2 * codes + 4 * groups * 128);
  const size_t lane = value ? size_t(dim) : size_t(slot) % 32;
  const size_t row = value ? size_t(slot) : size_t(slot) / 32 * dims + size_t(dim);
  const size_t row_lanes = value ? dims : 32;
  const std::byte* cell = section + (value ? codes : 0);
  unsigned code;
  if (layout.bits == 8) {
    code = unsigned(cell[row * row_lanes + lane]);
  } else {
    const auto both = unsigned(cell[row * row_lanes / 2 + lane / 32 * 16 + lane % 16]);
    code = lane % 32 < 16 ? both & 15 : both >> 4;
  }
  const auto factor = [&](size_t plane) {
    uint16_t bits;
    const size_t at = (plane * groups + size_t(dim) / size_t(layout.group)) * 64 + size_t(slot);
    std::memcpy(&bits, section + 2 * codes + 2 * at, 2);
    return f16_to_f32(bits);
  };
  return float(code) * factor(value ? 2 : 0) + factor(value ? 3 : 1);
}

// The f32 value of a stored key or value; NaN when the view does not hold the token.
inline float stored(const KvBlockLayout& layout, const KvView& view, int64_t token, int head,
                    int dim, bool value) {
  const size_t element = layout.type == KvType::kF32 ? 4 : 2;
  const int64_t slot = token % 64, block = token / 64 - view.first_block;
  if (block < 0 || block >= int64_t(view.blocks.size())) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  if (view.layout->bits > 0)
    return stored_code(*view.layout, view.blocks[block], slot, head, dim, value);
  const std::byte* section =
      view.blocks[block] +
      size_t(head) * 64 * element * (layout.head_dim + (layout.head_dim + 15) / 16 * 16);
  const size_t cell =
      value ? 64 * size_t(layout.head_dim) + slot * ((layout.head_dim + 15) / 16 * 16) + dim
            : slot / 32 * 32 * layout.head_dim + dim * 32 + slot % 32;
  float f32;
  uint16_t bits;
  std::memcpy(&f32, section + cell * element, element == 4 ? 4 : 0);
  std::memcpy(&bits, section + cell * element, 2);
  switch (layout.type) {
    case KvType::kF16:
      return f16_to_f32(bits);
    case KvType::kBF16:
      return bf16_to_f32(bits);
    case KvType::kF32:
      return f32;
  }
  return 0;
}

// What append_kv should have stored for a finite x of moderate size.
inline float rounded(KvType type, float x) {
  switch (type) {
    case KvType::kF16:
      return f16_to_f32(f32_to_f16(x));
    case KvType::kBF16:
      return bf16_to_f32(f32_to_bf16(x));
    case KvType::kF32:
      return x;
  }
  return 0;
}

// MLX's affine quantization of one group (docs of mx.quantize), scale and bias in f16: the value of
// largest magnitude keeps its place, steps are those of bits; decoded again.
inline std::vector<float> quantized_group(const std::vector<float>& x, int bits) {
  const auto f16 = [](float v) { return f16_to_f32(f32_to_f16(v)); };
  const float low = *std::min_element(x.begin(), x.end());
  const float high = *std::max_element(x.begin(), x.end());
  const float largest_code = float((1 << bits) - 1);
  const bool low_wins = -low > high && std::fabs(low) > std::fabs(high);
  const float edge = low_wins ? low : high;
  float scale = std::max((high - low) / largest_code, 1e-7f) * (low_wins ? 1.0f : -1.0f);
  const float zero = std::rint(edge / scale);
  float bias = 0;
  if (zero != 0) {
    scale = edge / zero;
    bias = edge;
  }
  scale = f16(scale);
  bias = f16(bias);
  std::vector<float> out;
  for (const float v : x) {
    const float code = std::min(std::max(std::rint((v - bias) / scale), 0.0f), largest_code);
    out.push_back(code * scale + bias);
  }
  return out;
}

// Sylvester's Hadamard matrix of the largest power of two that divides the head, over its square
// root, by definition: entry (i, j) is (−1)^popcount(i & j).
template <class Real>
std::vector<double> rotated(const std::vector<Real>& head) {
  size_t n = 1;
  while (head.size() % (2 * n) == 0) n *= 2;
  std::vector<double> out(head.size(), 0.0);
  for (size_t i = 0; i < head.size(); i++)
    for (size_t j = 0; j < n; j++)
      out[i] += (std::popcount(i % n & j) % 2 ? -1 : 1) * double(head[i / n * n + j]) /
                std::sqrt(double(n));
  return out;
}

// The same in f32: sums and differences of the rotated halves, which fixes every rounding.
inline std::vector<float> rotated_halves(const std::vector<float>& x) {
  if (x.size() == 1) return x;
  const auto half = ptrdiff_t(x.size() / 2);
  const std::vector<float> a = rotated_halves({x.begin(), x.begin() + half});
  const std::vector<float> b = rotated_halves({x.begin() + half, x.end()});
  std::vector<float> out;
  for (size_t i = 0; i < a.size(); i++) out.push_back(a[i] + b[i]);
  for (size_t i = 0; i < a.size(); i++) out.push_back(a[i] - b[i]);
  return out;
}

// A head's values as a quantized layer keeps them: with 8 bits rotated, then quantized.
inline std::vector<float> quantized(const KvQuant& quant, const std::vector<float>& plain) {
  size_t n = 1;
  while (quant.bits == 8 && plain.size() % (2 * n) == 0) n *= 2;
  std::vector<float> head;
  for (size_t at = 0; at < plain.size(); at += n)
    for (const float x :
         rotated_halves({plain.begin() + ptrdiff_t(at), plain.begin() + ptrdiff_t(at + n)}))
      head.push_back(x * (1 / std::sqrt(float(n))));
  std::vector<float> out;
  for (size_t at = 0; at < head.size(); at += size_t(quant.group)) {
    const auto group = quantized_group(
        {head.begin() + long(at), head.begin() + long(at) + quant.group}, quant.bits);
    out.insert(out.end(), group.begin(), group.end());
  }
  return out;
}

// Leaves NaN in the next `blocks` blocks that the pool hands out. All types read 0xff… as NaN.
inline void poison(KvBlockPool& pool, size_t block_bytes, int blocks) {
  std::vector<KvBlockPtr> taken;
  for (int i = 0; i < blocks; i++) {
    taken.push_back(pool.allocate(block_bytes));
    std::memset(taken.back()->data(), 0xff, block_bytes);
  }
}

// One query head in float64: attention at `position` over the cells that the view's blocks hold.
inline std::vector<double> reference_attention(const KvBlockLayout& layout, const KvView& view,
                                               const AttentionParams& params, int64_t position,
                                               int head, const float* q) {
  const int kv_head = head / (params.heads / layout.kv_heads);
  const bool rotates = view.layout->bits == 8;
  std::vector<double> query(q, q + layout.head_dim);
  if (rotates) query = rotated(query);
  const int64_t first = params.window > 0 ? std::max<int64_t>(0, position + 1 - params.window) : 0;
  std::vector<double> logits;
  for (int64_t t = first; t <= position; t++) {
    double logit = 0;
    for (int d = 0; d < layout.head_dim; d++) {
      logit += query[size_t(d)] * stored(layout, view, t, kv_head, d, false);
    }
    logit *= params.scale;
    if (params.softcap > 0) logit = params.softcap * std::tanh(logit / params.softcap);
    logits.push_back(logit);
  }
  double top = *std::max_element(logits.begin(), logits.end());
  if (!params.sinks.empty()) top = std::max<double>(top, params.sinks[head]);
  double sum = params.sinks.empty() ? 0 : std::exp(params.sinks[head] - top);
  std::vector<double> out(layout.head_dim, 0.0);
  for (int64_t t = first; t <= position; t++) {
    const double weight = std::exp(logits[t - first] - top);
    sum += weight;
    for (int d = 0; d < layout.head_dim; d++) {
      out[d] += weight * stored(layout, view, t, kv_head, d, true);
    }
  }
  for (double& value : out) value /= sum;
  return rotates ? rotated(out) : out;
}

inline std::vector<mantou::Isa> available_isas() {
  std::vector<mantou::Isa> isas = {mantou::Isa::kScalar};
  if (detected_isa() >= mantou::Isa::kAvx2) isas.push_back(mantou::Isa::kAvx2);
  if (detected_isa() >= mantou::Isa::kAvx512) isas.push_back(mantou::Isa::kAvx512);
  return isas;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace mantou::cpu::test
