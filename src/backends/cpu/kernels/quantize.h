// Activation rows in the forms the matrix kernels read.
//
// Integer-coded weights take rows quantized to int8, one f32 scale per 32 columns: scale = amax /
// 127, q = round to even of x · (127 / amax). A group whose amax is at most 1e-30 becomes zero; one
// that holds a NaN or an infinity gets a NaN scale, so that every output of its row is NaN. Dense
// weights take the f32 values. Either way rows lie in panels (kernel_table.h). Columns are padded
// to a multiple of 256 with zeros for the quantized form, so that one buffer serves matrices of all
// families.
//
// The caller owns the buffers (alignment 64). Different rows may be written by different threads.
#pragma once

#include <cstddef>

#include "backends/cpu/kernels/kernel_table.h"

namespace mantou::cpu {

// Blocks of the quantized form of [rows, cols].
size_t quantized_blocks(const KernelTable& table, int rows, int cols);

// Row `row` of `rows`: x[cols] into its place in `out`. The last row also zeroes the padding rows.
void quantize_row(const KernelTable& table, const float* x, int cols, int row, int rows,
                  QuantizedBlock* out);

// Floats of the panel form of [rows, cols].
size_t panel_floats(const KernelTable& table, int rows, int cols);

// Row `row` of `rows`: x[cols] into its place in `out`. The last row also zeroes the padding rows.
void panel_row(const KernelTable& table, const float* x, int cols, int row, int rows, float* out);

}  // namespace mantou::cpu
