#include "base/raw_tensor.h"

#include <array>
#include <cstring>

#include "base/error.h"

namespace mantou {
namespace {

constexpr std::array<DTypeInfo, 26> kInfo = {{
    {"F64", 1, 8},        {"F32", 1, 4},     {"F16", 1, 2},      {"BF16", 1, 2},
    {"I64", 1, 8},        {"I32", 1, 4},     {"I16", 1, 2},      {"I8", 1, 1},
    {"U64", 1, 8},        {"U32", 1, 4},     {"U16", 1, 2},      {"U8", 1, 1},
    {"BOOL", 1, 1},       {"Q4_0", 32, 18},  {"Q4_1", 32, 20},   {"Q5_0", 32, 22},
    {"Q5_1", 32, 24},     {"Q8_0", 32, 34},  {"Q4_K", 256, 144}, {"Q5_K", 256, 176},
    {"Q6_K", 256, 210},   {"Q2_K", 256, 84}, {"Q3_K", 256, 110}, {"IQ4_NL", 32, 18},
    {"IQ4_XS", 256, 136}, {"MXFP4", 32, 17},
}};

// Rows `stored` of a tensor of `count` rows, as a matrix.
RawTensor rows_of(const RawTensor& tensor, int64_t count, std::span<const uint32_t> stored) {
  const size_t stride = tensor.bytes.size() / size_t(count);
  RawTensor out = tensor;
  out.shape = {int64_t(stored.size()), tensor.elements() / count};
  bool run = true;
  for (size_t i = 1; i < stored.size(); ++i) run &= stored[i] == stored[0] + i;
  if (run) {
    out.bytes = tensor.bytes.subspan(stored[0] * stride, stored.size() * stride);
    return out;
  }
  auto copy = std::make_shared<std::vector<std::byte>>(stored.size() * stride);
  for (size_t i = 0; i < stored.size(); ++i)
    std::memcpy(copy->data() + i * stride, tensor.bytes.data() + stored[i] * stride, stride);
  out.bytes = *copy;
  out.keep_alive = std::move(copy);
  return out;
}

}  // namespace

const DTypeInfo& dtype_info(DType dtype) { return kInfo.at(size_t(dtype)); }

size_t dtype_bytes(DType dtype, size_t elements) {
  const DTypeInfo& info = dtype_info(dtype);
  if (elements % size_t(info.block_size) != 0)
    fail(ErrorCode::kInternal, "{} elements are no whole number of {} blocks", elements, info.name);
  return elements / size_t(info.block_size) * size_t(info.block_bytes);
}

int64_t RawTensor::elements() const {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  return n;
}

RawWeight select_rows(const RawWeight& weight, std::span<const uint32_t> rows) {
  std::vector<uint32_t> stored(rows.begin(), rows.end());
  for (uint32_t& row : stored) {
    if (row >= weight.rows)
      fail(ErrorCode::kInternal, "{}: row {} of {} selected", weight.data.name, row, weight.rows);
    if (!weight.row_order.empty()) row = weight.row_order[row];
  }
  RawWeight out = weight;
  out.row_order.clear();
  out.rows = int64_t(stored.size());
  if (stored.empty()) fail(ErrorCode::kInternal, "{}: no rows selected", weight.data.name);
  out.data = rows_of(weight.data, weight.rows, stored);
  if (weight.scales) out.scales = rows_of(*weight.scales, weight.rows, stored);
  if (weight.biases) out.biases = rows_of(*weight.biases, weight.rows, stored);
  return out;
}

}  // namespace mantou
