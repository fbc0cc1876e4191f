// Products with weights, on as many threads as the backend was given.
//
// MLX computes a product on a CPU on the one thread of its stream. Each output is a sum of its own,
// over the columns of one row, in an order that does not depend on other rows: large matrices are
// therefore cut into parts of rows, each on a stream of its own, and no bit of the result depends
// on the number of parts. Lanes are made once; split() is for the time of loading, linear() for
// steps.
#pragma once

#include <vector>

#include "backends/mlx/mlx_arrays.h"

namespace mantou::on_mlx {

// Streams to compute parts on; the first is the calling thread's default stream.
using Lanes = std::vector<mx::StreamOrDevice>;

Lanes make_lanes(int threads);

// Gives the matrix [rows, cols] parts, views of itself, when it has enough rows for that.
void split(ArrayStorage& matrix, const Lanes& lanes);

// x [B, L, cols] -> [B, L, rows]
array linear(const array& x, const Linear& linear);

}  // namespace mantou::on_mlx
