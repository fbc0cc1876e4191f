// The specification of the activations' quantization.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "backends/cpu/kernels/kernel_sets.h"

namespace mantou::cpu {
namespace {

constexpr int32_t kInfinityBits = 0x7f800000;

void quantize_block(const float* x, QuantizedBlock& out) {
  int32_t magnitude =
      0;  // the largest |x|, compared as bits: NaN and infinity are above all numbers
  for (int i = 0; i < 32; ++i)
    magnitude = std::max(magnitude, std::bit_cast<int32_t>(x[i]) & 0x7fffffff);
  out = QuantizedBlock{};
  if (magnitude >= kInfinityBits) {
    out.scale = out.scaled_sum = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  const float amax = std::bit_cast<float>(magnitude);
  if (!(amax > kSmallestQuantized)) return;
  const float inverse = 127.0f / amax;
  int32_t half_sums[2] = {0, 0};
  for (int i = 0; i < 32; ++i) {
    const auto q = int32_t(std::nearbyint(x[i] * inverse));
    out.q[i] = int8_t(q);
    half_sums[i / 16] += q;
  }
  const int32_t sum = half_sums[0] + half_sums[1];
  out.scale = amax / 127.0f;
  out.scaled_sum = out.scale * float(sum);
  out.negative_sum = -sum;
  out.negative_half_sums[0] = int16_t(-half_sums[0]);
  out.negative_half_sums[1] = int16_t(-half_sums[1]);
}

void quantize(const float* x, int cols, QuantizedBlock* out, size_t stride) {
  int k = 0;
  for (; k + 32 <= cols; k += 32, out += stride) quantize_block(x + k, *out);
  if (k == cols) return;
  float padded[32] = {};
  std::copy(x + k, x + cols, padded);
  quantize_block(padded, *out);
}

}  // namespace

void add_quantize_scalar(KernelTable& table) { table.quantize = quantize; }

}  // namespace mantou::cpu
