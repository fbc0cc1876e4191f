#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backends/cpu/kernels/pack_rows.h"
#include "backends/cpu/kernels/packed_weight.h"
#include "base/error.h"
#include "base/half.h"

namespace mantou::cpu {
namespace {

// Tiles of one chunk of work: enough bytes to make claiming cheap, few enough to share evenly.
constexpr size_t kChunkBytes = size_t(256) << 10;

const uint8_t* bytes_of(const RawTensor& tensor) {
  return reinterpret_cast<const uint8_t*>(tensor.bytes.data());
}

void require_bytes(const RawTensor& tensor, size_t expected) {
  if (tensor.bytes.size() != expected)
    fail_param(ErrorCode::kCorruptData, tensor.name, "tensor {} has {} bytes, its shape needs {}",
               tensor.name, tensor.bytes.size(), expected);
}

void check_shape(const RawWeight& weight) {
  constexpr int64_t kLimit = std::numeric_limits<int>::max() / 2;
  const std::string& name = weight.data.name;
  if (weight.rows < 1 || weight.cols < 1 || weight.rows > kLimit || weight.cols > kLimit)
    fail_param(ErrorCode::kUnsupported, name, "tensor {} is {} x {}; extents must be 1 to {}", name,
               weight.rows, weight.cols, kLimit);
  if (weight.row_order.empty()) return;
  const auto out_of_range = [&](uint32_t row) { return row >= weight.rows; };
  if (int64_t(weight.row_order.size()) != weight.rows ||
      std::any_of(weight.row_order.begin(), weight.row_order.end(), out_of_range))
    fail_param(ErrorCode::kInternal, name, "tensor {}: its row order does not fit its {} rows",
               name, weight.rows);
}

size_t stored_row(const RawWeight& weight, int row) {
  return weight.row_order.empty() ? size_t(row) : weight.row_order[size_t(row)];
}

// Calls pack_tile(first_row, row_count, tile) for each tile of `matrix`, in parallel.
template <class PackTile>
PackedMatrix for_each_tile(PackedMatrix matrix, Arena& arena, ThreadPool& pool,
                           const PackTile& pack_tile) {
  std::byte* data = arena.allocate(matrix.bytes());
  matrix.data = data;
  const size_t tile_bytes = matrix.tile_bytes();
  const int tiles = matrix.tiles(), tile_rows = matrix.tile_rows();
  const int per_chunk = int(std::max<size_t>(1, kChunkBytes / tile_bytes));
  pool.run((tiles + per_chunk - 1) / per_chunk, [&](int chunk, int) {
    const int end = std::min(tiles, (chunk + 1) * per_chunk);
    for (int t = chunk * per_chunk; t < end; ++t) {
      auto* tile = reinterpret_cast<uint8_t*>(data + size_t(t) * tile_bytes);
      std::memset(tile, 0, tile_bytes);
      pack_tile(t * tile_rows, std::min(tile_rows, matrix.rows - t * tile_rows), tile);
    }
  });
  return matrix;
}

// --- GGUF blocks ---

using PackRow = void (*)(const uint8_t* src, int cols, int r, const BlockGeometry& geometry,
                         uint8_t* tile);
struct BlockFormat {
  DType dtype;
  Family family;
  PackRow pack_row;
};
constexpr BlockFormat kBlockFormats[] = {
    {DType::kQ4_0, Family::kQ4_0, pack_gguf32_row<4, false>},
    {DType::kQ4_1, Family::kAffine4F16, pack_gguf32_row<4, true>},
    {DType::kQ5_0, Family::kQ5_0, pack_gguf32_row<5, false>},
    {DType::kQ5_1, Family::kAffine5F16, pack_gguf32_row<5, true>},
    {DType::kQ8_0, Family::kQ8_0, pack_gguf32_row<8, false>},
    {DType::kQ4_K, Family::kQ4_K, pack_q45k_row<4>},
    {DType::kQ5_K, Family::kQ5_K, pack_q45k_row<5>},
    {DType::kQ6_K, Family::kQ6_K, pack_q6k_row},
    {DType::kQ3_K, Family::kQ3_K, pack_q3k_row},
    {DType::kQ2_K, Family::kQ2_K, pack_q2k_row},
    {DType::kIQ4_NL, Family::kIQ4_NL, pack_gguf32_row<4, false>},
    {DType::kIQ4_XS, Family::kIQ4_XS, pack_iq4xs_row},
    {DType::kMXFP4, Family::kMXFP4, pack_mxfp4_row},
};

PackedMatrix pack_blocks(const RawWeight& weight, const BlockFormat& format, Arena& arena,
                         ThreadPool& pool) {
  const RawTensor& data = weight.data;
  const DTypeInfo& info = dtype_info(data.dtype);
  if (weight.cols % info.block_size != 0)
    fail_param(ErrorCode::kCorruptData, data.name,
               "tensor {} has rows of {} values, {} needs a multiple of {}", data.name, weight.cols,
               info.name, info.block_size);
  const size_t row_bytes = dtype_bytes(data.dtype, size_t(weight.cols));
  require_bytes(data, row_bytes * size_t(weight.rows));
  const BlockGeometry geometry = block_geometry(kFamilySpecs[size_t(format.family)], 0);
  const PackedMatrix matrix{format.family, 0, int(weight.rows), int(weight.cols)};
  return for_each_tile(matrix, arena, pool, [&](int first, int count, uint8_t* tile) {
    for (int r = 0; r < count; ++r)
      format.pack_row(bytes_of(data) + stored_row(weight, first + r) * row_bytes, matrix.cols, r,
                      geometry, tile);
  });
}

// --- MLX affine ---

Family affine_family(const RawWeight& weight) {
  const bool narrow = weight.bits <= 4;
  switch (weight.scales->dtype) {
    case DType::kF16:
      return narrow ? Family::kAffine4F16 : Family::kAffine8F16;
    case DType::kBF16:
      return narrow ? Family::kAffine4BF16 : Family::kAffine8BF16;
    case DType::kF32:
      return narrow ? Family::kAffine4F32 : Family::kAffine8F32;
    default:
      fail_param(ErrorCode::kUnsupported, weight.scales->name,
                 "tensor {} has scales of type {}; F16, BF16 and F32 are known",
                 weight.scales->name, dtype_info(weight.scales->dtype).name);
  }
}

int affine_shift(const RawWeight& weight) {
  for (int shift = 0; shift <= 2; ++shift)
    if (weight.group == 32 << shift) return shift;
  fail_param(ErrorCode::kUnsupported, weight.data.name,
             "tensor {} has quantization groups of {}; 32, 64 and 128 are known", weight.data.name,
             weight.group);
}

void check_affine(const RawWeight& weight) {
  const std::string& name = weight.data.name;
  const int bits = weight.bits;
  if (bits < 1 || bits > 8 || bits == 7)
    fail_param(ErrorCode::kUnsupported, name, "tensor {} has {} bit codes; 1 to 6 and 8 are known",
               name, bits);
  if (!weight.biases || weight.biases->dtype != weight.scales->dtype)
    fail_param(ErrorCode::kCorruptData, name,
               "tensor {}: biases must be there, in the scales' type", name);
  if (weight.cols % weight.group != 0)
    fail_param(ErrorCode::kCorruptData, name,
               "tensor {} has rows of {} values, which is no multiple of its group of {}", name,
               weight.cols, weight.group);
}

PackedMatrix pack_affine(const RawWeight& weight, Arena& arena, ThreadPool& pool) {
  const int shift = affine_shift(weight);
  check_affine(weight);
  const Family family = affine_family(weight);
  const BlockGeometry geometry = block_geometry(kFamilySpecs[size_t(family)], shift);
  const size_t row_bytes = size_t(weight.cols) * size_t(weight.bits) / 8;
  const size_t scale_bytes = dtype_bytes(weight.scales->dtype, size_t(weight.cols / weight.group));
  require_bytes(weight.data, row_bytes * size_t(weight.rows));
  require_bytes(*weight.scales, scale_bytes * size_t(weight.rows));
  require_bytes(*weight.biases, scale_bytes * size_t(weight.rows));
  const auto pack_row = weight.bits <= 4 ? pack_affine_row<4> : pack_affine_row<8>;
  const PackedMatrix matrix{family, shift, int(weight.rows), int(weight.cols)};
  return for_each_tile(matrix, arena, pool, [&](int first, int count, uint8_t* tile) {
    for (int r = 0; r < count; ++r) {
      const size_t row = stored_row(weight, first + r);
      pack_row(bytes_of(weight.data) + row * row_bytes,
               bytes_of(*weight.scales) + row * scale_bytes,
               bytes_of(*weight.biases) + row * scale_bytes, matrix.cols, weight.bits, shift, r,
               geometry, tile);
    }
  });
}

// --- MLX float modes ---

PackedMatrix pack_mlx_mxfp4(const RawWeight& weight, Arena& arena, ThreadPool& pool) {
  const std::string& name = weight.data.name;
  if (weight.bits != 4 || weight.group != 32 || weight.cols % 32 != 0)
    fail_param(ErrorCode::kUnsupported, name,
               "tensor {} has rows of {} values of {} bits in groups of {}; mxfp4 has 4 bits in "
               "groups of 32",
               name, weight.cols, weight.bits, weight.group);
  const size_t row_bytes = size_t(weight.cols) / 2, scale_bytes = size_t(weight.cols) / 32;
  require_bytes(weight.data, row_bytes * size_t(weight.rows));
  require_bytes(*weight.scales, scale_bytes * size_t(weight.rows));
  const BlockGeometry geometry = block_geometry(kFamilySpecs[size_t(Family::kMXFP4)], 0);
  const PackedMatrix matrix{Family::kMXFP4, 0, int(weight.rows), int(weight.cols)};
  return for_each_tile(matrix, arena, pool, [&](int first, int count, uint8_t* tile) {
    for (int r = 0; r < count; ++r) {
      const size_t row = stored_row(weight, first + r);
      pack_mlx_mxfp4_row(bytes_of(weight.data) + row * row_bytes,
                         bytes_of(*weight.scales) + row * scale_bytes, matrix.cols, r, geometry,
                         tile);
    }
  });
}

// --- dense ---

// Rows [cols] of T, given by row_at(r), into a tile [cols][32].
template <class T, class RowAt>
void pack_dense_tile(int cols, int count, const RowAt& row_at, uint8_t* tile) {
  constexpr int kSpan = 64;  // columns at a time: their part of the tile stays in the L1 cache
  for (int k0 = 0; k0 < cols; k0 += kSpan) {
    const int k1 = std::min(cols, k0 + kSpan);
    for (int r = 0; r < count; ++r) {
      const uint8_t* row = row_at(r);
      for (int k = k0; k < k1; ++k)
        std::memcpy(tile + (size_t(k) * kDenseTileRows + size_t(r)) * sizeof(T),
                    row + size_t(k) * sizeof(T), sizeof(T));
    }
  }
}

PackedMatrix pack_dense(const RawWeight& weight, Family family, Arena& arena, ThreadPool& pool) {
  const size_t row_bytes = dtype_bytes(weight.data.dtype, size_t(weight.cols));
  require_bytes(weight.data, row_bytes * size_t(weight.rows));
  const auto pack_tile = family == Family::kDenseF32
                             ? [](int cols, int count, const uint8_t* const* rows, uint8_t* tile) {
                                 pack_dense_tile<uint32_t>(
                                     cols, count, [&](int r) { return rows[r]; }, tile);
                               }
                             : [](int cols, int count, const uint8_t* const* rows, uint8_t* tile) {
                                 pack_dense_tile<uint16_t>(
                                     cols, count, [&](int r) { return rows[r]; }, tile);
                               };
  const PackedMatrix matrix{family, 0, int(weight.rows), int(weight.cols)};
  return for_each_tile(matrix, arena, pool, [&](int first, int count, uint8_t* tile) {
    const uint8_t* rows[kDenseTileRows];
    for (int r = 0; r < count; ++r)
      rows[r] = bytes_of(weight.data) + stored_row(weight, first + r) * row_bytes;
    pack_tile(matrix.cols, count, rows, tile);
  });
}

// The rows as decode_row gives them; store(values, row, out) brings one into the element type T.
template <class T, class Store>
PackedMatrix pack_decoded(const RawWeight& weight, Family family, Arena& arena, ThreadPool& pool,
                          const Store& store) {
  const PackedMatrix matrix{family, 0, int(weight.rows), int(weight.cols)};
  return for_each_tile(matrix, arena, pool, [&](int first, int count, uint8_t* tile) {
    std::vector<float> row(size_t(matrix.cols));
    std::vector<T> stored(size_t(matrix.cols) * size_t(count));
    for (int r = 0; r < count; ++r) {
      decode_row(weight, first + r, row);
      store(row, first + r, stored.data() + size_t(r) * row.size());
    }
    const auto row_at = [&](int r) {
      return reinterpret_cast<const uint8_t*>(stored.data() + size_t(r) * row.size());
    };
    pack_dense_tile<T>(matrix.cols, count, row_at, tile);
  });
}

// Values of nvfp4 and mxfp8 have at most six significant bits; only exponents at the ends of their
// range do not fit into bf16.
PackedMatrix pack_as_bf16(const RawWeight& weight, Arena& arena, ThreadPool& pool) {
  const auto store = [&](const std::vector<float>& row, int at, uint16_t* out) {
    for (size_t k = 0; k < row.size(); ++k) {
      out[k] = f32_to_bf16(row[k]);
      if (!std::isfinite(row[k]) || bf16_to_f32(out[k]) != row[k])
        fail_param(ErrorCode::kUnsupported, weight.data.name,
                   "tensor {}: the value {} in row {} does not fit into bf16, in which this format "
                   "is computed",
                   weight.data.name, row[k], at);
    }
  };
  return pack_decoded<uint16_t>(weight, Family::kDenseBF16, arena, pool, store);
}

PackedMatrix pack_mlx(const RawWeight& weight, Arena& arena, ThreadPool& pool) {
  if (weight.affine()) return pack_affine(weight, arena, pool);
  if (weight.mode == QuantMode::kMxFp4) return pack_mlx_mxfp4(weight, arena, pool);
  return pack_as_bf16(weight, arena, pool);
}

}  // namespace

PackedMatrix pack(const RawWeight& weight, Arena& arena, ThreadPool& pool) {
  check_shape(weight);
  if (weight.scales) return pack_mlx(weight, arena, pool);
  for (const BlockFormat& format : kBlockFormats)
    if (format.dtype == weight.data.dtype) return pack_blocks(weight, format, arena, pool);
  switch (weight.data.dtype) {
    case DType::kF32:
      return pack_dense(weight, Family::kDenseF32, arena, pool);
    case DType::kF16:
      return pack_dense(weight, Family::kDenseF16, arena, pool);
    case DType::kBF16:
      return pack_dense(weight, Family::kDenseBF16, arena, pool);
    default:
      fail_param(ErrorCode::kUnsupported, weight.data.name,
                 "tensor {} has type {}, which is no weight type", weight.data.name,
                 dtype_info(weight.data.dtype).name);
  }
}

PackedMatrix pack_dense_f32(const RawWeight& weight, Arena& arena, ThreadPool& pool) {
  check_shape(weight);
  const auto store = [](const std::vector<float>& row, int, float* out) {
    std::copy(row.begin(), row.end(), out);
  };
  return pack_decoded<float>(weight, Family::kDenseF32, arena, pool, store);
}

}  // namespace mantou::cpu
