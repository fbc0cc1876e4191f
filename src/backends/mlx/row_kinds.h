// What a layer state needs to know of KvTensorRows and KvRingRows: one interface over both, as
// static functions of a type each. Engine thread.
#pragma once

#include <algorithm>

#include "backends/mlx/kv_ring_rows.h"
#include "tensor/layer_state.h"

namespace mantou::on_mlx {

// A row alone, as it is saved: the columns that planes hold, and what else its kind needs.
struct RowImage {
  Planes planes;
  std::map<std::string, int64_t> numbers;  // "columns" among them
};

// Full attention.
struct FullRows {
  using Rows = KvTensorRows;
  static constexpr bool kGoesBack = true;  // trim works for every row, at any time
  static Rows make(const StateSpec&) { return {}; }
  static Rows one(const Rows& rows, int row) {
    Rows out;
    if (rows.rows() == 1 && rows.left_pad()[0] == 0) return rows;  // shares the planes
    out.restore(rows.extract(row), {rows.offsets()[size_t(row)]}, {0});
    return out;
  }
  static bool trim(Rows& rows, int row, int64_t count) {
    rows.trim(row, count);
    return true;
  }
  static Planes append(Rows& rows, const Planes& inputs) {
    rows.append(inputs);
    return rows.read();
  }
  static Mask mask(const Rows& rows, int64_t count, bool as_array) {
    return rows.mask(count, 0, as_array);
  }
  static std::vector<int64_t> position(const Rows& rows) { return rows.offsets(); }
  static Planes planes(const Rows& rows) { return rows.planes(); }
  static void replace(Rows& rows, Planes planes) {
    rows.restore(std::move(planes), rows.offsets(), rows.left_pad());
  }
  static int64_t columns(const StateSpec&, int64_t tokens) { return (tokens + 255) / 256 * 256; }
  // Positions go back, planes stay: what was written behind them is not read.
  static bool go_back(Rows& rows, const std::vector<int64_t>& offsets) {
    rows.restore(rows.planes(), offsets, rows.left_pad());
    return true;
  }
  static RowImage save(const Rows& one) {
    const int64_t tokens = one.offsets()[0];
    RowImage image{{}, {{"columns", tokens}}};
    for (const array& plane : one.planes())
      if (tokens > 0) image.planes.push_back(columns_of(plane, 0, tokens));
    return image;
  }
  static int64_t columns_of_image(const StateSpec&, const SnapshotReader& reader, int64_t tokens) {
    return reader.number("columns", tokens, tokens);
  }
  static Rows load(const StateSpec&, const SnapshotReader&, Planes planes, int64_t tokens) {
    Rows rows;
    rows.restore(std::move(planes), {tokens}, {0});
    return rows;
  }
};

// Sliding windows.
struct RingRows {
  using Rows = KvRingRows;
  static constexpr bool kGoesBack = false;
  static Rows make(const StateSpec& spec) { return Rows(spec.window); }
  static Rows one(const Rows& rows, int row) {
    return rows.is_lone() ? rows : rows.extract(row);  // shares the planes
  }
  static bool trim(Rows& rows, int row, int64_t count) { return rows.trim(row, count); }
  static Planes append(Rows& rows, const Planes& inputs) { return rows.append(inputs); }
  static Mask mask(const Rows& rows, int64_t count, bool) { return rows.mask(count); }
  static std::vector<int64_t> position(const Rows& rows) {
    return {rows.size(), rows.index(), rows.total(), rows.rotated()};
  }
  static Planes planes(const Rows& rows) { return rows.planes(); }
  static void replace(Rows& rows, Planes planes) { rows.replace_planes(std::move(planes)); }
  static int64_t columns(const StateSpec& spec, int64_t tokens) {
    return std::min(spec.window, (tokens + 255) / 256 * 256);
  }
  static bool go_back(Rows&, const std::vector<int64_t>&) { return false; }
  // A turned ring is saved as it lies, so that attention adds in the same order afterwards.
  static RowImage save(const Rows& one) {
    const Planes& planes = one.planes();
    const int64_t all = planes.empty() ? 0 : planes[0].shape(2);
    const int64_t columns = one.rotated() ? all : std::min(one.index(), all);
    RowImage image{{}, {{"columns", columns}, {"index", one.index()}, {"rotated", one.rotated()}}};
    for (const array& plane : planes)
      if (columns > 0) image.planes.push_back(columns_of(plane, 0, columns));
    return image;
  }
  static int64_t columns_of_image(const StateSpec& spec, const SnapshotReader& reader,
                                  int64_t tokens) {
    return reader.number("columns", std::min(tokens, spec.window), tokens);
  }
  static Rows load(const StateSpec& spec, const SnapshotReader& reader, Planes planes,
                   int64_t tokens) {
    const int64_t columns = planes.empty() ? 0 : planes[0].shape(2);
    const bool rotated = reader.number("rotated", 0, columns == spec.window ? 1 : 0) == 1;
    const int64_t index = reader.number("index", rotated ? 1 : columns, columns);
    Rows rows(spec.window);
    rows.adopt(std::move(planes), tokens, index, rotated);
    return rows;
  }
};

}  // namespace mantou::on_mlx
