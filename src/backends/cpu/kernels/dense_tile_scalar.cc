// The specification of the dense products: every other set gives these bits.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/cpu/kernels/family_spec.h"
#include "backends/cpu/kernels/kernel_sets.h"
#include "base/half.h"

namespace mantou::cpu {
namespace {

template <Family kFamily>
float weight_at(const std::byte* tile, int k, int r) {
  const size_t at = size_t(k) * kDenseTileRows + size_t(r);
  if constexpr (kFamily == Family::kDenseF32) {
    float value;
    std::memcpy(&value, tile + at * 4, 4);
    return value;
  } else {
    uint16_t half;
    std::memcpy(&half, tile + at * 2, 2);
    return kFamily == Family::kDenseF16 ? f16_to_f32(half) : bf16_to_f32(half);
  }
}

// Output n of one row.
template <Family kFamily>
float output(const std::byte* weights, int cols, const float* x, int n) {
  constexpr size_t kElement = kFamily == Family::kDenseF32 ? 4 : 2;
  const std::byte* tile =
      weights + size_t(n / kDenseTileRows) * kDenseTileRows * kElement * size_t(cols);
  float total = 0;
  for (int k0 = 0; k0 < cols; k0 += kDenseSpan) {
    float sum = 0;
    for (int k = k0; k < std::min(cols, k0 + kDenseSpan); ++k)
      sum = std::fma(weight_at<kFamily>(tile, k, n % kDenseTileRows), x[k], sum);
    total += sum;
  }
  return total;
}

template <Family kFamily>
void tiles(const std::byte* weights, int, int cols, const float* panels, int rows, float* y,
           size_t ldy, int valid_cols) {
  for (int m = 0; m < rows; ++m)
    for (int n = 0; n < valid_cols; ++n)
      y[size_t(m) * ldy + size_t(n)] =
          output<kFamily>(weights, cols, panels + size_t(m) * size_t(cols), n);
}

}  // namespace

void add_dense_tiles_scalar(KernelTable& table) {
  table.dense_panel = 1;
  table.dense_tiles[0] = tiles<Family::kDenseF32>;
  table.dense_tiles[1] = tiles<Family::kDenseF16>;
  table.dense_tiles[2] = tiles<Family::kDenseBF16>;
}

}  // namespace mantou::cpu
