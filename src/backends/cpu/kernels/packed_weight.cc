#include "backends/cpu/kernels/packed_weight.h"

#include <fmt/format.h>

#include <cstring>

#include "backends/cpu/kernels/family_spec.h"
#include "backends/cpu/kernels/packed_code.h"
#include "base/half.h"

namespace mantou::cpu {
namespace {

constexpr const char* kFamilyNames[kFamilies] = {
    "Q4_0",  "Q5_0",   "Q8_0",   "A4F16", "A4BF16", "A4F32", "A5F16",
    "A8F16", "A8BF16", "A8F32",  "Q4_K",  "Q5_K",   "Q6_K",  "Q3_K",
    "Q2_K",  "IQ4_NL", "IQ4_XS", "MXFP4", "F32",    "F16",   "BF16"};

size_t dense_element_bytes(Family family) { return family == Family::kDenseF32 ? 4 : 2; }

void unpack_dense_row(const PackedMatrix& matrix, int row, float* out) {
  const size_t size = dense_element_bytes(matrix.family);
  const std::byte* tile = matrix.data + size_t(row / kDenseTileRows) * matrix.tile_bytes();
  for (int k = 0; k < matrix.cols; ++k) {
    const std::byte* at = tile + (size_t(k) * kDenseTileRows + size_t(row % kDenseTileRows)) * size;
    uint16_t half;
    if (matrix.family == Family::kDenseF32) {
      std::memcpy(out + k, at, 4);
      continue;
    }
    std::memcpy(&half, at, 2);
    out[k] = matrix.family == Family::kDenseF16 ? f16_to_f32(half) : bf16_to_f32(half);
  }
}

}  // namespace

int PackedMatrix::blocks() const {
  if (is_dense(family)) return cols;
  const int block_cols = 32 * block_geometry(kFamilySpecs[size_t(family)], group_shift).groups;
  return (cols + block_cols - 1) / block_cols;
}

size_t PackedMatrix::tile_bytes() const {
  if (is_dense(family)) return size_t(cols) * kDenseTileRows * dense_element_bytes(family);
  return size_t(blocks()) * size_t(block_geometry(kFamilySpecs[size_t(family)], group_shift).bytes);
}

std::string PackedMatrix::layout_id() const {
  return fmt::format("v{}:{}:{}:{}x{}", kPackedLayoutVersion, kFamilyNames[size_t(family)],
                     group_shift, rows, cols);
}

void unpack_row(const PackedMatrix& matrix, int row, float* out) {
  if (is_dense(matrix.family)) return unpack_dense_row(matrix, row, out);
  const FamilySpec& spec = kFamilySpecs[size_t(matrix.family)];
  const BlockGeometry geometry = block_geometry(spec, matrix.group_shift);
  const auto* tile =
      reinterpret_cast<const uint8_t*>(matrix.data) + size_t(row / kTileRows) * matrix.tile_bytes();
  const int r = row % kTileRows;
  for (int k = 0; k < matrix.cols; ++k) {
    const uint8_t* block = tile + size_t(k / (32 * geometry.groups)) * size_t(geometry.bytes);
    const int group = k / 32 % geometry.groups;
    const int set = spec.per_16() ? k / 16 % 16 : group >> matrix.group_shift;
    const int code = code_value(block + group * geometry.code_bytes, spec, r, k % 32);
    const uint8_t* scales = block + geometry.scales_at + set * geometry.scale_bytes;
    float scale = scale_value(scales, spec.scale, r), min = 0;
    if (spec.scale == ScaleKind::kU4Per16)
      min = float(scales[r] >> 4);
    else if (spec.has_min)
      min = scale_value(block + geometry.mins_at + set * geometry.scale_bytes, spec.scale, r);
    if (spec.super()) {
      scale *= f16_at(block + geometry.supers_at, r);
      if (spec.has_min) min *= f16_at(block + geometry.supers_at + 32, r);
    }
    out[k] = spec.has_min ? scale * float(code) + min : scale * float(code);
  }
}

}  // namespace mantou::cpu
