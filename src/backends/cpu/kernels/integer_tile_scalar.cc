// The specification of the integer-coded products: every other set gives these bits.
#include <cmath>

#include "backends/cpu/kernels/kernel_sets.h"
#include "backends/cpu/kernels/packed_code.h"

namespace mantou::cpu {
namespace {

void load_codes(const uint8_t* group, const FamilySpec& spec, int r, int* codes) {
  for (int c = 0; c < 32; ++c) codes[c] = code_value(group, spec, r, c);
}

int32_t dot(const int* codes, const int8_t* q, int count) {
  int32_t sum = 0;
  for (int i = 0; i < count; ++i) sum += codes[i] * q[i];
  return sum;
}

// Row r of a block whose scales are floats, or integers per 32 columns under a super scale.
float add_block(float y, const FamilySpec& spec, const BlockGeometry& geometry, int group_shift,
                const uint8_t* block, int r, const QuantizedBlock* x) {
  int codes[32];
  for (int g = 0; g < geometry.groups; ++g) {
    const int at = (g >> group_shift) * geometry.scale_bytes;
    load_codes(block + g * geometry.code_bytes, spec, r, codes);
    float scale = scale_value(block + geometry.scales_at + at, spec.scale, r);
    if (spec.super()) scale *= f16_at(block + geometry.supers_at, r);
    y = std::fma(float(dot(codes, x[g].q, 32)), scale * x[g].scale, y);
    if (!spec.has_min) continue;
    float min = scale_value(block + geometry.mins_at + at, spec.scale, r);
    if (spec.super()) min *= f16_at(block + geometry.supers_at + 32, r);
    y = std::fma(min, x[g].scaled_sum, y);
  }
  return y;
}

// Row r of a block of integer scales per 16 columns under one super scale; then the mins, which are
// sums of halves under a second.
float add_block_per_16(float y, const FamilySpec& spec, const BlockGeometry& geometry,
                       const uint8_t* block, int r, const QuantizedBlock* x) {
  const bool nibbles = spec.scale == ScaleKind::kU4Per16;
  const auto scales_at = [&](int set) {
    return block[geometry.scales_at + set * geometry.scale_bytes + r];
  };
  const auto scale = [&](int set) {
    return nibbles ? scales_at(set) & 15 : int(int8_t(scales_at(set)));
  };
  int codes[32];
  float inner = 0;
  for (int g = 0; g < geometry.groups; ++g) {
    load_codes(block + g * geometry.code_bytes, spec, r, codes);
    const int32_t sum =
        dot(codes, x[g].q, 16) * scale(2 * g) + dot(codes + 16, x[g].q + 16, 16) * scale(2 * g + 1);
    inner = std::fma(float(sum), x[g].scale, inner);
  }
  y = std::fma(inner, f16_at(block + geometry.supers_at, r), y);
  if (!nibbles) return y;
  float mins = 0;
  for (int g = 0; g < geometry.groups; ++g) {
    const int32_t sum = (scales_at(2 * g) >> 4) * x[g].negative_half_sums[0] +
                        (scales_at(2 * g + 1) >> 4) * x[g].negative_half_sums[1];
    mins = std::fma(float(sum), x[g].scale, mins);
  }
  return std::fma(-mins, f16_at(block + geometry.supers_at + 32, r), y);
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
      sum = spec.per_16() ? add_block_per_16(sum, spec, geometry, block, r, x)
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
