#include "backends/cpu/kernels/quantize.h"

#include <cstring>

namespace mantou::cpu {
namespace {

constexpr int kColumnPadding = 256;  // the widest block of a packed matrix

int padded_groups(int cols) {
  return int((int64_t(cols) + kColumnPadding - 1) / kColumnPadding * (kColumnPadding / 32));
}

// Rows that the panels of `rows` rows have room for.
size_t panel_capacity(int rows, int full_panel) {
  const int whole = rows / full_panel * full_panel;
  return size_t(whole) + (rows > whole ? size_t(panel_rows(rows - whole, full_panel)) : 0);
}

// Where a row lies: its panel's first row, the panel's size and its own index in it.
struct Place {
  int first, size, index;
};
Place place_of(int row, int rows, int full_panel) {
  const int first = row / full_panel * full_panel;
  return {first, panel_rows(rows - first, full_panel), row - first};
}

}  // namespace

size_t quantized_blocks(const KernelTable& table, int rows, int cols) {
  return panel_capacity(rows, table.quantized_panel) * size_t(padded_groups(cols));
}

void quantize_row(const KernelTable& table, const float* x, int cols, int row, int rows,
                  QuantizedBlock* out) {
  const Place place = place_of(row, rows, table.quantized_panel);
  const size_t groups = size_t(padded_groups(cols)), used = size_t((int64_t(cols) + 31) / 32);
  const size_t stride = size_t(place.size);
  QuantizedBlock* panel = out + size_t(place.first) * groups;
  table.quantize(x, cols, panel + place.index, stride);
  for (size_t g = used; g < groups; ++g) panel[g * stride + size_t(place.index)] = {};
  if (row + 1 != rows) return;
  for (int padding = place.index + 1; padding < place.size; ++padding)
    for (size_t g = 0; g < groups; ++g) panel[g * stride + size_t(padding)] = {};
}

size_t panel_floats(const KernelTable& table, int rows, int cols) {
  return panel_capacity(rows, table.dense_panel) * size_t(cols);
}

void panel_row(const KernelTable& table, const float* x, int cols, int row, int rows, float* out) {
  const Place place = place_of(row, rows, table.dense_panel);
  const size_t stride = size_t(place.size);
  float* panel = out + size_t(place.first) * size_t(cols);
  if (stride == 1) {
    std::memcpy(panel, x, size_t(cols) * sizeof(float));
    return;
  }
  float* at = panel + place.index;
  for (int k = 0; k < cols; ++k, at += stride) *at = x[k];
  if (row + 1 != rows) return;
  for (int padding = place.index + 1; padding < place.size; ++padding)
    for (int k = 0; k < cols; ++k) panel[size_t(k) * stride + size_t(padding)] = 0.0f;
}

}  // namespace mantou::cpu
