// The kernels of one instruction set as function pointers, chosen once from what the CPU has.
//
// All sets give the same bits: the scalar set is the specification of each kernel, the others do
// the same integer sums and the same f32 operations in the same order. kNumericsId names that
// arithmetic. Backend code calls the functions of quantize.h, matmul.h and elementwise.h, which
// take a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backends/cpu/kernels/packed_weight.h"
#include "base/cpu_features.h"

namespace mantou::cpu {

// Names the arithmetic of matrix and elementwise kernels.
constexpr std::string_view kNumericsId = "cpu-i8g32-3";

// 32 activations of one row: x[i] ≈ scale · q[i].
struct QuantizedBlock {
  int8_t q[32];                   // −127 … 127
  float scale;                    // NaN when one of the 32 is NaN or infinite (q is then 0)
  float scaled_sum;               // scale · Σq
  int32_t negative_sum;           // −Σq
  int16_t negative_half_sums[2];  // −Σ of each 16
};
static_assert(sizeof(QuantizedBlock) == 48);

// A group whose largest magnitude is no more is quantized to zero: 127 / amax must stay finite.
constexpr float kSmallestQuantized = 1e-30f;

// Rows of activations are kept in panels: [panel][group or column][row of panel]. A full panel has
// as many rows as the table's largest kernel, the last is rounded up to a size that has a kernel.
constexpr int kPanelSizes[] = {1, 2, 3, 4, 6, 8, 12, 16};
constexpr int kPanelKinds = 8;
constexpr int panel_rows(int rows_left, int full_panel) {
  if (rows_left >= full_panel) return full_panel;
  for (int size : kPanelSizes)
    if (size >= rows_left) return size;
  return full_panel;
}

struct ArgMax {
  int64_t index;  // lowest index of the largest value; −1 when n is 0
  float value;
  bool has_nan;  // some element is NaN; index and value then mean nothing
};

struct KernelTable {
  std::string_view name;  // "scalar", "avx2", "avx512"
  int quantized_panel;    // rows of a full panel of QuantizedBlock
  int dense_panel;        // rows of a full panel of f32

  // One tile (16 rows of weights) times one panel: y[m · ldy + n] for m < valid_rows, n <
  // valid_cols. Index: [family][index of the panel's size in kPanelSizes].
  using QuantizedTile = void (*)(const std::byte* tile, int blocks, int group_shift,
                                 const QuantizedBlock* panel, float* y, size_t ldy, int valid_rows,
                                 int valid_cols);
  QuantizedTile quantized_tile[kIntegerFamilies][kPanelKinds];

  // `tiles` dense tiles (32 rows of weights each) times all panels: y[m · ldy + n] for m < rows,
  // n < valid_cols.
  using DenseTiles = void (*)(const std::byte* weights, int tiles, int cols, const float* panels,
                              int rows, float* y, size_t ldy, int valid_cols);
  DenseTiles dense_tiles[kFamilies - kIntegerFamilies];

  // cols values into one block each 32 at out[0], out[stride], …; the last block is padded with
  // zeros.
  void (*quantize)(const float* x, int cols, QuantizedBlock* out, size_t stride);

  // elementwise.h describes these.
  void (*rms_norm)(const float* x, const float* weight, float eps, bool plus_one, int n,
                   float* out);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int n,
                     float* out);
  void (*swiglu_oai)(const float* gate, const float* up, int64_t n, float* out);
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  void (*gelu_tanh_mul)(const float* gate, const float* up, int64_t n, float* out);
  void (*add)(const float* a, const float* b, int64_t n, float* out);
  void (*multiply)(const float* a, const float* b, int64_t n, float* out);
  void (*scale)(const float* x, float factor, int64_t n, float* out);
  void (*softcap)(const float* x, float cap, int64_t n, float* out);
  void (*exp)(const float* x, int64_t n, float* out);
  void (*tanh)(const float* x, int64_t n, float* out);
  void (*rope)(float* x, const float* cos, const float* sin, int heads, int head_dim, int rotated);
  ArgMax (*arg_max)(const float* x, int64_t n);
};

// The table of one instruction set; nullptr when this CPU cannot run it.
const KernelTable* kernels_for(Isa isa);

// The table of isa_from_environment(). Chosen at the first call; any thread.
const KernelTable& kernels();

}  // namespace mantou::cpu
