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

template <Family kFamily>
void tile(const std::byte* weights, int cols, const float* panels, int rows, float* y, size_t ldy,
          int valid_cols) {
  for (int m = 0; m < rows; ++m) {
    const float* x = panels + size_t(m) * size_t(cols);
    for (int r = 0; r < valid_cols; ++r) {
      float total = 0;
      for (int k0 = 0; k0 < cols; k0 += kDenseSpan) {
        float sum = 0;
        for (int k = k0; k < std::min(cols, k0 + kDenseSpan); ++k)
          sum = std::fma(weight_at<kFamily>(weights, k, r), x[k], sum);
        total += sum;
      }
      y[size_t(m) * ldy + size_t(r)] = total;
    }
  }
}

}  // namespace

void add_dense_tiles_scalar(KernelTable& table) {
  table.dense_panel = 1;
  table.dense_tile[0] = tile<Family::kDenseF32>;
  table.dense_tile[1] = tile<Family::kDenseF16>;
  table.dense_tile[2] = tile<Family::kDenseBF16>;
}

}  // namespace mantou::cpu
