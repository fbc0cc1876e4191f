#include "models/loader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace mantou::models {
namespace {

// Plain columns, one below the other; of one type where they all are, else f32.
RawWeight stack(const std::vector<RawWeight>& columns) {
  if (columns.size() == 1) return columns[0];
  RawWeight all = columns[0];
  auto bytes = std::make_shared<std::vector<std::byte>>();
  const bool same = std::all_of(columns.begin(), columns.end(),
                                [&](const RawWeight& c) { return c.data.dtype == all.data.dtype; });
  all.rows = 0;
  for (const RawWeight& column : columns) {
    all.rows += column.rows;
    if (same) {
      bytes->insert(bytes->end(), column.data.bytes.begin(), column.data.bytes.end());
      continue;
    }
    for (int64_t row = 0; row < column.rows; row++) {
      float value = 0;
      decode_row(column, row, {&value, 1});
      const auto* const p = reinterpret_cast<const std::byte*>(&value);
      bytes->insert(bytes->end(), p, p + sizeof(value));
    }
  }
  if (!same) all.data.dtype = DType::kF32;
  all.data.shape = {all.rows, 1};
  all.data.bytes = *bytes;
  all.data.keep_alive = std::move(bytes);
  return all;
}

}  // namespace

RowList row_range(int64_t first, int64_t count) {
  RowList rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), uint32_t(first));
  return rows;
}

RawWeight Loader::raw(const std::string& module, int64_t rows, int64_t cols) {
  RawWeight raw = artifact_.weight(module);
  if (raw.rows != rows || raw.cols != cols)
    fail_param(ErrorCode::kCorruptData, module, "{}: {} is {} x {}, the configuration says {} x {}",
               artifact_.path().string(), module, raw.rows, raw.cols, rows, cols);
  return raw;
}

void Loader::require_finite(const RawWeight& raw, const std::string& name) const {
  if (!is_finite(raw))
    fail_param(ErrorCode::kCorruptData, name, "{}: {} holds NaN or infinity; the file is damaged",
               artifact_.path().string(), name);
}

Weight Loader::pack(const RawWeight& raw, const std::string& name, WeightUse use) {
  require_finite(raw, name);
  return backend_.pack(raw, use);
}

Weight Loader::matrix(const std::string& module, int64_t rows, int64_t cols, WeightUse use) {
  return pack(raw(module, rows, cols), module, use);
}

Linear Loader::linear(const std::string& module, int64_t stored, int64_t cols, bool bias,
                      const RowList& order, WeightUse use) {
  const RawWeight all = raw(module, stored, cols);
  Linear linear{pack(order.empty() ? all : select_rows(all, order), module, use), std::nullopt};
  if (!bias) return linear;
  RawWeight column = float_column(module + ".bias", stored);
  if (!order.empty()) column = select_rows(column, order);
  linear.bias = pack_vector({column}, module + ".bias");
  return linear;
}

Linear Loader::experts(const std::vector<ExpertRows>& each, int64_t cols, bool bias) {
  std::vector<RawWeight> matrices, columns;
  for (const ExpertRows& expert : each) {
    const auto part = [&](const RawWeight& all) {
      return expert.rows.empty() ? all : select_rows(all, expert.rows);
    };
    matrices.push_back(part(raw(expert.module, expert.stored, cols)));
    require_finite(matrices.back(), expert.module);
    if (bias) columns.push_back(part(float_column(expert.module + ".bias", expert.stored)));
  }
  Linear linear{backend_.pack_experts(matrices), std::nullopt};
  if (bias) linear.bias = pack_vector(columns, each[0].module + ".bias");
  return linear;
}

RawWeight Loader::float_column(const std::string& name, int64_t size) {
  RawWeight column;
  column.data = artifact_.tensor(name);
  if (column.data.elements() != size || is_block_type(column.data.dtype))
    fail_param(ErrorCode::kCorruptData, name, "{}: {} has {} elements of {}, needed are {} floats",
               artifact_.path().string(), name, column.data.elements(),
               dtype_info(column.data.dtype).name, size);
  column.rows = size;
  column.cols = 1;
  return column;
}

Weight Loader::vector(const Names& names, int64_t size) {
  std::vector<RawWeight> columns;
  for (const std::string& name : names) columns.push_back(float_column(name, size));
  return pack_vector(columns, names[0]);
}

Weight Loader::pack_vector(const std::vector<RawWeight>& columns, const std::string& name) {
  RawWeight vector = stack(columns);
  std::swap(vector.rows, vector.cols);
  return pack(vector, name, WeightUse::kVector);
}

}  // namespace mantou::models
