#include "models/loader.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace mantou::models {
namespace {

// f32 values as a weight of one row, which owns them.
RawWeight as_row(const std::string& name, const std::vector<float>& values) {
  auto bytes = std::make_shared<std::vector<std::byte>>(values.size() * sizeof(float));
  std::memcpy(bytes->data(), values.data(), bytes->size());
  RawWeight row;
  row.rows = 1;
  row.cols = int64_t(values.size());
  row.data = {name, DType::kF32, {row.cols}, *bytes, bytes};
  return row;
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
  std::vector<float> values = decode(column, module + ".bias");
  linear.bias = vector(module + ".bias", values);
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

std::vector<float> Loader::decode(RawWeight column, const std::string& name) {
  require_finite(column, name);
  std::swap(column.rows, column.cols);
  std::vector<float> values(static_cast<size_t>(column.cols));
  decode_row(column, 0, values);
  return values;
}

std::vector<float> Loader::floats(const std::string& name, int64_t size) {
  return decode(float_column(name, size), name);
}

Weight Loader::vector(const std::string& name, const std::vector<float>& values) {
  return backend_.pack(as_row(name, values), WeightUse::kVector);
}

}  // namespace mantou::models
