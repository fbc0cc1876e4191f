#include "backends/cpu/kernels/packed_weight.h"

#include <fmt/format.h>

#include <cstring>

#include "backends/cpu/kernels/family_spec.h"
#include "base/half.h"

namespace mantou::cpu {
namespace {

constexpr const char* kFamilyNames[kFamilies] = {
    "Q4_0",   "Q5_0",  "Q8_0", "A4F16", "A4BF16", "A4F32", "A5F16", "A8F16",
    "A8BF16", "A8F32", "Q4_K", "Q5_K",  "Q6_K",   "F32",   "F16",   "BF16"};

size_t dense_element_bytes(Family family) { return family == Family::kDenseF32 ? 4 : 2; }

float load_scale(const uint8_t* scales, ScaleKind kind, int r) {
  if (kind == ScaleKind::kU8) return float(scales[r]);
  if (kind == ScaleKind::kI8) return float(int8_t(scales[r]));
  if (kind == ScaleKind::kF32) {
    float value;
    std::memcpy(&value, scales + 4 * r, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, scales + 2 * r, 2);
  return kind == ScaleKind::kBF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

// Code of row r, column c (0…31) of a group.
int load_code(const uint8_t* group, int bits, int r, int c) {
  const int j = c / 4, at = 4 * r + c % 4;
  if (bits == 8) return group[64 * j + at];
  int code = group[64 * (j & 3) + at] >> (j / 4 * 4) & 15;
  if (bits == 5) code |= (group[256 + at] >> j & 1) << 4;
  if (bits == 6) code |= (group[256 + 64 * (j / 4) + at] >> (2 * (j & 3)) & 3) << 4;
  return code;
}

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
    const int set = spec.scale == ScaleKind::kI8 ? k / 16 % 16 : group >> matrix.group_shift;
    const int code =
        load_code(block + group * geometry.code_bytes, spec.bits, r, k % 32) - spec.offset();
    float scale =
        load_scale(block + geometry.scales_at + set * geometry.scale_bytes, spec.scale, r);
    float min = 0;
    if (spec.has_min)
      min = load_scale(block + geometry.mins_at + set * geometry.scale_bytes, spec.scale, r);
    if (spec.super()) {
      scale *= load_scale(block + geometry.supers_at, ScaleKind::kF16, r);
      if (spec.has_min) min *= load_scale(block + geometry.supers_at + 32, ScaleKind::kF16, r);
    }
    out[k] = spec.has_min ? scale * float(code) + min : scale * float(code);
  }
}

}  // namespace mantou::cpu
