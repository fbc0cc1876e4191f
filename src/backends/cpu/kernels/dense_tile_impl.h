// Dense tiles over Vector; included after one vector_*.h by the unit of each instruction set.
//
// One running sum per output inside each 256 columns, in ascending k; 32 outputs side by side give
// enough independent sums to hide the latency. Few rows read the stored weights directly, more rows
// share a widened copy of each span in the L1 cache.
#pragma once

#include "backends/cpu/kernels/family_spec.h"
#include "backends/cpu/kernels/kernel_sets.h"

namespace mantou::cpu {
namespace {

constexpr int kWidth = Vector::kWidth;
constexpr int kPairRows = 2 * kWidth;  // weight rows of a micro kernel with many activation rows
constexpr int kPairs = kDenseTileRows / kPairRows;

// kWidth weights from element `at` of a tile on.
template <Family kFamily>
MANTOU_INLINE Vector::F load_weights(const std::byte* tile, size_t at) {
  if constexpr (kFamily == Family::kDenseF32)
    return Vector::load(reinterpret_cast<const float*>(tile) + at);
  if constexpr (kFamily == Family::kDenseF16)
    return Vector::load_f16(reinterpret_cast<const uint16_t*>(tile) + at);
  return Vector::load_bf16(reinterpret_cast<const uint16_t*>(tile) + at);
}

inline void store_columns(float* y, const float* values, int count) {
  __builtin_memcpy(y, values, size_t(count) * sizeof(float));
}

// Columns [k0, k1) of `tile` times kRows rows: kVectors vectors of outputs from row `first` on,
// added to totals[m][…].
template <Family kFamily, int kRows, int kVectors>
MANTOU_INLINE void add_few(const std::byte* tile, int k0, int k1, int first, const float* x,
                           float (*totals)[kDenseTileRows]) {
  constexpr int kElement = kFamily == Family::kDenseF32 ? 4 : 2;
  constexpr int kAhead = 4096 / (kDenseTileRows * kElement);  // columns: 4 KiB
  Vector::F sums[kRows][kVectors];
  MANTOU_UNROLL for (int m = 0; m < kRows; ++m) {
    MANTOU_UNROLL for (int v = 0; v < kVectors; ++v) sums[m][v] = Vector::set(0.0f);
  }
  for (int k = k0; k < k1; ++k) {
    const size_t at = size_t(k) * kDenseTileRows + size_t(first);
    _mm_prefetch(reinterpret_cast<const char*>(tile) + (at + kAhead * kDenseTileRows) * kElement,
                 _MM_HINT_T0);
    if constexpr (kElement == 4)
      _mm_prefetch(
          reinterpret_cast<const char*>(tile) + (at + kAhead * kDenseTileRows) * kElement + 64,
          _MM_HINT_T0);
    Vector::F w[kVectors];
    MANTOU_UNROLL for (int v = 0; v < kVectors; ++v) {
      w[v] = load_weights<kFamily>(tile, at + size_t(v * kWidth));
    }
    MANTOU_UNROLL for (int m = 0; m < kRows; ++m) {
      const Vector::F value = Vector::set(x[size_t(k) * kRows + size_t(m)]);
      MANTOU_UNROLL for (int v = 0; v < kVectors; ++v) {
        sums[m][v] = Vector::fma(w[v], value, sums[m][v]);
      }
    }
  }
  MANTOU_UNROLL for (int m = 0; m < kRows; ++m) {
    MANTOU_UNROLL for (int v = 0; v < kVectors; ++v) {
      float* total = totals[m] + first + v * kWidth;
      Vector::store(total, Vector::add(Vector::load(total), sums[m][v]));
    }
  }
}

template <Family kFamily, int kRows>
void few_rows(const std::byte* tile, int cols, const float* x, float* y, size_t ldy, int valid_rows,
              int valid_cols) {
  // All 32 outputs at once where the sums fit into the registers, else in halves.
  constexpr int kTileVectors = kDenseTileRows / kWidth;
  constexpr int kVectors = kRows * kTileVectors <= kFewSums ? kTileVectors : kTileVectors / 2;
  float totals[kRows][kDenseTileRows] = {};
  for (int k0 = 0; k0 < cols; k0 += kDenseSpan) {
    const int k1 = cols - k0 < kDenseSpan ? cols : k0 + kDenseSpan;
    for (int first = 0; first < kDenseTileRows; first += kVectors * kWidth)
      add_few<kFamily, kRows, kVectors>(tile, k0, k1, first, x, totals);
  }
  const int stored = valid_cols < kDenseTileRows ? valid_cols : kDenseTileRows;
  for (int m = 0; m < valid_rows; ++m) store_columns(y + size_t(m) * ldy, totals[m], stored);
}

using FewRows = void (*)(const std::byte* tile, int cols, const float* x, float* y, size_t ldy,
                         int valid_rows, int valid_cols);

// The kernels of a panel of `size` rows, at most kFewRows or kMaxRows: larger sizes do not occur.
template <Family kFamily>
MANTOU_INLINE FewRows few_rows_kernel(int size) {
  switch (size) {
    case 1:
      return few_rows<kFamily, 1>;
    case 2:
      return few_rows<kFamily, 2>;
    case 3:
      return few_rows<kFamily, 3>;
    case 4:
      return few_rows<kFamily, 4>;
    case 6:
      return few_rows<kFamily, (kFewRows > 6 ? 6 : kFewRows)>;
    case 8:
      return few_rows<kFamily, (kFewRows > 8 ? 8 : kFewRows)>;
    default:
      return few_rows<kFamily, kFewRows>;
  }
}

// A span of a tile, widened: [pair of vectors][column][kPairRows].
template <Family kFamily>
MANTOU_INLINE void widen(const std::byte* tile, int k0, int count, float* out) {
  for (int pair = 0; pair < kPairs; ++pair) {
    for (int k = 0; k < count; ++k, out += kPairRows) {
      const size_t at = size_t(k0 + k) * kDenseTileRows + size_t(pair * kPairRows);
      Vector::store(out, load_weights<kFamily>(tile, at));
      Vector::store(out + kWidth, load_weights<kFamily>(tile, at + kWidth));
    }
  }
}

// y[m][0 … kPairRows) = sums over `count` columns, added to what is there unless `first`.
template <int kRows>
void many_rows(const float* weights, const float* x, int count, bool first, float* y, size_t ldy,
               int valid_rows, int valid_cols) {
  Vector::F sums[kRows][2];
  MANTOU_UNROLL for (int m = 0; m < kRows; ++m) sums[m][0] = sums[m][1] = Vector::set(0.0f);
  for (int k = 0; k < count; ++k, weights += kPairRows, x += kRows) {
    const Vector::F w0 = Vector::load(weights), w1 = Vector::load(weights + kWidth);
    MANTOU_UNROLL for (int m = 0; m < kRows; ++m) {
      const Vector::F value = Vector::set(x[m]);
      sums[m][0] = Vector::fma(w0, value, sums[m][0]);
      sums[m][1] = Vector::fma(w1, value, sums[m][1]);
    }
  }
  MANTOU_UNROLL for (int m = 0; m < kRows; ++m) {
    if (m >= valid_rows) continue;
    float* out = y + size_t(m) * ldy;
    float edge[kPairRows];
    float* at = out;
    if (valid_cols < kPairRows) {
      at = edge;
      if (!first) store_columns(edge, out, valid_cols);
    }
    const Vector::F zero = Vector::set(0.0f);
    Vector::store(at, Vector::add(first ? zero : Vector::load(at), sums[m][0]));
    Vector::store(at + kWidth, Vector::add(first ? zero : Vector::load(at + kWidth), sums[m][1]));
    if (at == edge) store_columns(out, edge, valid_cols);
  }
}

using ManyRows = void (*)(const float* weights, const float* x, int count, bool first, float* y,
                          size_t ldy, int valid_rows, int valid_cols);

MANTOU_INLINE ManyRows many_rows_kernel(int size) {
  switch (size) {
    case 1:
      return many_rows<1>;
    case 2:
      return many_rows<2>;
    case 3:
      return many_rows<3>;
    case 4:
      return many_rows<4>;
    case 6:
      return many_rows<6>;
    case 8:
      return many_rows<(kMaxRows > 8 ? 8 : kMaxRows)>;
    default:
      return many_rows<kMaxRows>;
  }
}

// All panels times `count` widened columns of a tile from k0 on.
void add_span(const float* widened, int k0, int count, int cols, const float* panels, int rows,
              float* y, size_t ldy, int valid_cols) {
  for (int pair = 0; pair * kPairRows < valid_cols; ++pair) {
    const float* w = widened + size_t(pair) * size_t(count) * kPairRows;
    const int left = valid_cols - pair * kPairRows;
    for (int m = 0; m < rows; m += kMaxRows) {
      const int size = panel_rows(rows - m, kMaxRows);
      const float* x = panels + size_t(m) * size_t(cols) + size_t(k0) * size_t(size);
      many_rows_kernel(size)(w, x, count, k0 == 0, y + size_t(m) * ldy + pair * kPairRows, ldy,
                             rows - m, left);
    }
  }
}

template <Family kFamily>
void tiles(const std::byte* weights, int tile_count, int cols, const float* panels, int rows,
           float* y, size_t ldy, int valid_cols) {
  constexpr size_t kElement = kFamily == Family::kDenseF32 ? 4 : 2;
  const size_t tile_bytes = size_t(cols) * kDenseTileRows * kElement;
  if (rows <= kFewRows) {
    const FewRows kernel = few_rows_kernel<kFamily>(panel_rows(rows, kMaxRows));
    for (int t = 0; t < tile_count; ++t)
      kernel(weights + size_t(t) * tile_bytes, cols, panels, y + t * kDenseTileRows, ldy, rows,
             valid_cols - t * kDenseTileRows);
    return;
  }
  // Spans outside, tiles inside: one span of the activations stays in the L2 cache for all tiles.
  alignas(64) float widened[kDenseSpan * kDenseTileRows];
  for (int k0 = 0; k0 < cols; k0 += kDenseSpan) {
    const int count = cols - k0 < kDenseSpan ? cols - k0 : kDenseSpan;
    for (int t = 0; t < tile_count; ++t) {
      widen<kFamily>(weights + size_t(t) * tile_bytes, k0, count, widened);
      const int left = valid_cols - t * kDenseTileRows;
      add_span(widened, k0, count, cols, panels, rows, y + t * kDenseTileRows, ldy,
               left < kDenseTileRows ? left : kDenseTileRows);
    }
  }
}

void add_dense_tiles(KernelTable& table) {
  table.dense_panel = kMaxRows;
  table.dense_tiles[0] = tiles<Family::kDenseF32>;
  table.dense_tiles[1] = tiles<Family::kDenseF16>;
  table.dense_tiles[2] = tiles<Family::kDenseBF16>;
}

}  // namespace
}  // namespace mantou::cpu
