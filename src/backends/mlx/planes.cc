#include "backends/mlx/planes.h"

namespace mantou::on_mlx {

array zero_columns(const array& like, int64_t rows, int64_t columns) {
  return mx::zeros({int(rows), like.shape(1), int(columns), like.shape(3)}, like.dtype());
}

array columns_of(const array& plane, int64_t from, int64_t to) {
  return mx::slice(plane, {0, 0, int(from), 0},
                   {plane.shape(0), plane.shape(1), int(to), plane.shape(3)});
}

array with_columns(const array& plane, const array& values, int64_t first) {
  const mx::Shape start{0, 0, int(first), 0};
  const mx::Shape stop{plane.shape(0), plane.shape(1), int(first) + values.shape(2),
                       plane.shape(3)};
  return mx::slice_update(plane, values, start, stop);
}

array with_rows(const array& plane, const std::vector<int>& rows) {
  return mx::take(plane, ints({rows.begin(), rows.end()}, {int(rows.size())}), 0);
}

array roll_columns(const array& plane, const std::vector<int64_t>& shifts) {
  const int n = plane.shape(2);
  const array index = mx::reshape(mx::arange(0, n, 1, mx::int32), {1, 1, n, 1});
  const array from = mx::remainder(mx::subtract(index, ints(shifts, {int(shifts.size()), 1, 1, 1})),
                                   array(n, mx::int32));
  return mx::take_along_axis(plane, from, 2);
}

array copy_of_row(const array& plane, int row, int64_t from, int64_t to) {
  const array view =
      mx::slice(plane, {row, 0, int(from), 0}, {row + 1, plane.shape(1), int(to), plane.shape(3)});
  return mx::copy(mx::contiguous(view));
}

array ints(const std::vector<int64_t>& values, mx::Shape shape) {
  const std::vector<int32_t> narrow(values.begin(), values.end());
  return array(narrow.data(), std::move(shape), mx::int32);
}

}  // namespace mantou::on_mlx
