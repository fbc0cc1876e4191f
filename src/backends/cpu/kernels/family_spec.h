// Geometry of the packed integer-coded families (packed_weight.h draws the layout): plain
// constants, usable in translation units of any instruction set.
#pragma once

#include "backends/cpu/kernels/packed_weight.h"
#include "base/code_tables.h"

namespace mantou::cpu {

// kU8 and kI8 (32 columns), kI8Per16 and kU4Per16 (16) are integers under an f16 super scale.
enum class ScaleKind : uint8_t {
  kF16,
  kBF16,
  kF32,
  kU8,
  kI8,
  kI8Per16,
  kU4Per16,  // scale in the low, min in the high nibble of a byte
};

// What codes stand for: themselves less an offset, or values of a table.
enum class CodeTable : uint8_t { kNone, kIq4, kE2m1 };

[[gnu::always_inline]] constexpr const int8_t* code_table(CodeTable table) {
  return table == CodeTable::kIq4 ? kIq4Values : kE2m1Doubled;
}

struct FamilySpec {
  int bits;         // of a stored code
  ScaleKind scale;  // floats: one per 32 << group_shift columns
  bool has_min;
  int offset_log;  // kernels take unsigned codes, 1 << offset_log above the value; −1: no offset
  bool affine;     // group_shift may be 1 or 2
  CodeTable table = CodeTable::kNone;

  constexpr bool super() const { return scale >= ScaleKind::kU8; }
  constexpr bool per_16() const { return scale >= ScaleKind::kI8Per16; }
  constexpr int offset() const { return offset_log < 0 ? 0 : 1 << offset_log; }
  // Bits of the unsigned codes that are multiplied (a table's are 1…241 and 4…28).
  constexpr int code_bits() const {
    return table == CodeTable::kIq4 ? 8 : table == CodeTable::kE2m1 ? 5 : bits;
  }
};

// In the order of Family.
inline constexpr FamilySpec kFamilySpecs[kIntegerFamilies] = {
    {4, ScaleKind::kF16, false, 3, false},                     // kQ4_0
    {5, ScaleKind::kF16, false, 4, false},                     // kQ5_0
    {8, ScaleKind::kF16, false, 7, false},                     // kQ8_0
    {4, ScaleKind::kF16, true, -1, true},                      // kAffine4F16
    {4, ScaleKind::kBF16, true, -1, true},                     // kAffine4BF16
    {4, ScaleKind::kF32, true, -1, true},                      // kAffine4F32
    {5, ScaleKind::kF16, true, -1, false},                     // kAffine5F16
    {8, ScaleKind::kF16, true, -1, true},                      // kAffine8F16
    {8, ScaleKind::kBF16, true, -1, true},                     // kAffine8BF16
    {8, ScaleKind::kF32, true, -1, true},                      // kAffine8F32
    {4, ScaleKind::kU8, true, -1, false},                      // kQ4_K
    {5, ScaleKind::kU8, true, -1, false},                      // kQ5_K
    {6, ScaleKind::kI8Per16, false, 5, false},                 // kQ6_K
    {3, ScaleKind::kI8Per16, false, 2, false},                 // kQ3_K
    {2, ScaleKind::kU4Per16, true, -1, false},                 // kQ2_K
    {4, ScaleKind::kF16, false, 7, false, CodeTable::kIq4},    // kIQ4_NL
    {4, ScaleKind::kI8, false, 7, false, CodeTable::kIq4},     // kIQ4_XS
    {4, ScaleKind::kBF16, false, 4, false, CodeTable::kE2m1},  // kMXFP4
};

constexpr int kTileRows = 16;       // integer-coded families
constexpr int kDenseTileRows = 32;  // dense families
constexpr int kDenseSpan = 256;     // columns of one running sum of a dense product

struct BlockGeometry {
  int groups;                         // 32-column groups of a block
  int code_bytes;                     // codes of one group
  int scale_bytes;                    // 16 scales
  int scale_sets;                     // sets of 16 scales
  int scales_at, mins_at, supers_at;  // byte offsets in the block
  int bytes;                          // the block
};

[[gnu::always_inline]] constexpr BlockGeometry block_geometry(FamilySpec spec, int group_shift) {
  BlockGeometry g{};
  g.groups = spec.super() ? 8 : group_shift == 2 ? 4 : 2;
  g.code_bytes = 64 * spec.bits;
  g.scale_bytes = spec.super() ? 16 : spec.scale == ScaleKind::kF32 ? 64 : 32;
  g.scale_sets = spec.per_16() ? 16 : g.groups >> group_shift;
  g.scales_at = g.groups * g.code_bytes;
  g.mins_at = g.scales_at + g.scale_sets * g.scale_bytes;
  const bool own_mins = spec.has_min && spec.scale != ScaleKind::kU4Per16;
  g.supers_at = g.mins_at + (own_mins ? g.scale_sets * g.scale_bytes : 0);
  const int end = g.supers_at + (spec.super() ? (spec.has_min ? 64 : 32) : 0);
  g.bytes = (end + 63) / 64 * 64;
  return g;
}

}  // namespace mantou::cpu
