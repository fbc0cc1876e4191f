// The specification of the integer-coded products: every other set gives these bits.
#include <cmath>
#include <cstring>

#include "backends/cpu/kernels/family_spec.h"
#include "backends/cpu/kernels/kernel_sets.h"
#include "base/half.h"

namespace mantou::cpu {
namespace {

// Codes of row r of a group, column by column, less the family's offset.
void load_codes(const uint8_t* group, const FamilySpec& spec, int r, int* codes) {
  for (int j = 0; j < 8; ++j) {
    for (int i = 0; i < 4; ++i) {
      const int at = 4 * r + i;
      int code = 0;
      if (spec.bits == 8) {
        code = group[64 * j + at];
      } else {
        code = group[64 * (j & 3) + at] >> (j / 4 * 4) & 15;
        if (spec.bits == 5) code |= (group[256 + at] >> j & 1) << 4;
        if (spec.bits == 6) code |= (group[256 + 64 * (j / 4) + at] >> (2 * (j & 3)) & 3) << 4;
      }
      codes[4 * j + i] = code - spec.offset();
    }
  }
}

int32_t dot(const int* codes, const int8_t* q, int count) {
  int32_t sum = 0;
  for (int i = 0; i < count; ++i) sum += codes[i] * q[i];
  return sum;
}

float half_at(const uint8_t* p, int r, bool bf16) {
  uint16_t half;
  std::memcpy(&half, p + 2 * r, 2);
  return bf16 ? bf16_to_f32(half) : f16_to_f32(half);
}

float scale_at(const uint8_t* p, ScaleKind kind, int r) {
  if (kind == ScaleKind::kU8) return float(p[r]);
  if (kind == ScaleKind::kF32) {
    float value;
    std::memcpy(&value, p + 4 * r, 4);
    return value;
  }
  return half_at(p, r, kind == ScaleKind::kBF16);
}

// Row r of a block whose scales are floats, or u8 under a super scale.
float add_block(float y, const FamilySpec& spec, const BlockGeometry& geometry, int group_shift,
                const uint8_t* block, int r, const QuantizedBlock* x) {
  int codes[32];
  for (int g = 0; g < geometry.groups; ++g) {
    const int at = (g >> group_shift) * geometry.scale_bytes;
    load_codes(block + g * geometry.code_bytes, spec, r, codes);
    float scale = scale_at(block + geometry.scales_at + at, spec.scale, r);
    if (spec.super()) scale *= half_at(block + geometry.supers_at, r, false);
    y = std::fma(float(dot(codes, x[g].q, 32)), scale * x[g].scale, y);
    if (!spec.has_min) continue;
    float min = scale_at(block + geometry.mins_at + at, spec.scale, r);
    if (spec.super()) min *= half_at(block + geometry.supers_at + 32, r, false);
    y = std::fma(min, x[g].scaled_sum, y);
  }
  return y;
}

// Row r of a block of integer scales per 16 columns under one super scale.
float add_block_i8(float y, const FamilySpec& spec, const BlockGeometry& geometry,
                   const uint8_t* block, int r, const QuantizedBlock* x) {
  int codes[32];
  float inner = 0;
  for (int g = 0; g < geometry.groups; ++g) {
    load_codes(block + g * geometry.code_bytes, spec, r, codes);
    const uint8_t* scales = block + geometry.scales_at + 2 * g * geometry.scale_bytes;
    const int32_t sum = dot(codes, x[g].q, 16) * int8_t(scales[r]) +
                        dot(codes + 16, x[g].q + 16, 16) * int8_t(scales[16 + r]);
    inner = std::fma(float(sum), x[g].scale, inner);
  }
  return std::fma(inner, half_at(block + geometry.supers_at, r, false), y);
}

template <int kFamily>
void tile(const std::byte* weights, int blocks, int group_shift, const QuantizedBlock* panel,
          float* y, size_t, int valid_rows, int valid_cols) {
  const FamilySpec& spec = kFamilySpecs[kFamily];
  const BlockGeometry geometry = block_geometry(spec, group_shift);
  if (valid_rows < 1) return;
  for (int r = 0; r < valid_cols; ++r) {
    const auto* block = reinterpret_cast<const uint8_t*>(weights);
    const QuantizedBlock* x = panel;
    float sum = 0;
    for (int b = 0; b < blocks; ++b, block += geometry.bytes, x += geometry.groups)
      sum = spec.scale == ScaleKind::kI8 ? add_block_i8(sum, spec, geometry, block, r, x)
                                         : add_block(sum, spec, geometry, group_shift, block, r, x);
    y[r] = sum;
  }
}

template <int... kFamily>
void fill(KernelTable& table, IndexList<kFamily...>) {
  ((table.quantized_tile[kFamily][0] = tile<kFamily>), ...);
}

}  // namespace

void add_integer_tiles_scalar(KernelTable& table) {
  table.quantized_panel = 1;
  fill(table, MakeIndexList<kIntegerFamilies>::Type{});
}

}  // namespace mantou::cpu
