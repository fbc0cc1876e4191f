// A row's planes as saved bytes and back. Layout "mlx-planes-1": numbers tokens, minimum, bits and
// float_type (0 f32, 1 f16, 2 bf16), and those of the kind of rows; ranges are the planes, [heads,
// columns, fields] each. Stateless.
#pragma once

#include "backends/mlx/kv_codec.h"
#include "backends/mlx/row_kinds.h"

namespace mantou::on_mlx {

struct SavedRow {
  int64_t tokens = 0, minimum = 0;
  KvCodec codec;
  RowImage image;
};

// Computes the planes.
Snapshot save_row(const StateSpec& spec, SavedRow row);

inline constexpr std::string_view kRowLayout = "mlx-planes-1";
// Of a snapshot of any kind of rows.
int64_t saved_tokens(const SnapshotReader& reader);
// The planes of a row with so many columns; copies. kInvalidArgument for what does not fit `spec`.
SavedRow load_row(const StateSpec& spec, const Snapshot& saved, const SnapshotReader& reader,
                  int64_t columns);

}  // namespace mantou::on_mlx
