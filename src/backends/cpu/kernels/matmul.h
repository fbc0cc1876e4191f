// Products of activation rows with packed weights: y[m, n] = Σ_k x[m, k] · w[n, k].
//
// Any number of rows, any thread count, any instruction set: an output depends on its own row and
// its own weights alone, bit for bit (reductions run in a fixed order).
//   integer-coded: per 32-column group g an exact integer I = Σ (code − offset) · q (or of a
//     table's values), then y = fma(I, scale · x_scale, y), and with a min
//     y = fma(min, x_scale · Σq, y); Q2_K, Q3_K and Q6_K: integer scales inside,
//     h = fma(J, x_scale, h) over 256 columns, then y = fma(h, super_scale, y); Q2_K then the same
//     with J = −Σ (min · Σ of 16 q), from h = 0, and y = fma(−h, −super_min, y).
//   dense: s = fma(w, x, s) in ascending k from 0 inside each 256 columns, then y = y + s.
// A NaN or infinity in a row makes all of its outputs NaN (dense: NaN or infinite).
#pragma once

#include <cstddef>
#include <span>

#include "backends/cpu/kernels/kernel_table.h"
#include "backends/cpu/kernels/packed_weight.h"
#include "base/thread_pool.h"

namespace mantou::cpu {

// One batch of rows in the forms of quantize.h; only the form that a matrix needs must be there.
struct MatmulInput {
  int rows = 0;
  int cols = 0;
  const QuantizedBlock* quantized = nullptr;  // integer-coded families
  const float* panels = nullptr;              // dense families
};

// One matrix of a fused product and where its outputs go: y[m · ldy + n].
struct MatmulJob {
  const PackedMatrix* matrix = nullptr;
  float* y = nullptr;
  size_t ldy = 0;
};

// All jobs on one input in one parallel region (Q, K, V; gate and up). matrix->cols = input.cols.
void matmul(const KernelTable& table, ThreadPool& pool, std::span<const MatmulJob> jobs,
            const MatmulInput& input);

inline void matmul(const KernelTable& table, ThreadPool& pool, const PackedMatrix& matrix,
                   const MatmulInput& input, float* y, size_t ldy) {
  const MatmulJob job{&matrix, y, ldy};
  matmul(table, pool, {&job, 1}, input);
}

// Outputs of the tiles [first, last) on the calling thread, for callers with regions of their own.
void matmul_tiles(const KernelTable& table, const MatmulJob& job, const MatmulInput& input,
                  int first, int last);

}  // namespace mantou::cpu
