// Planes of a cache, [rows, heads, columns, fields], and what is done to their columns. Pure
// functions.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/mlx/mlx_arrays.h"

namespace mantou::on_mlx {

using Planes = std::vector<array>;

inline constexpr int64_t kPlaneGrowth = 256;  // columns

// Zeros of the plane's heads, fields and type.
array zero_columns(const array& like, int64_t rows, int64_t columns);
array columns_of(const array& plane, int64_t from, int64_t to);
// `values` written over the columns from `first` on.
array with_columns(const array& plane, const array& values, int64_t first);
array with_rows(const array& plane, const std::vector<int>& rows);  // these rows, in order
// Row r moved right by shifts[r] columns, around the end.
array roll_columns(const array& plane, const std::vector<int64_t>& shifts);
// Columns [from, to) of one row, as a copy that holds on to nothing else.
array copy_of_row(const array& plane, int row, int64_t from, int64_t to);

// i32 values.
array ints(const std::vector<int64_t>& values, mx::Shape shape);

}  // namespace mantou::on_mlx
