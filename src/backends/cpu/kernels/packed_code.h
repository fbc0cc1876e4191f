// Reading single codes and scales of packed tiles: what the scalar kernels and unpack_row share.
// For units that run on every CPU.
#pragma once

#include <cstdint>
#include <cstring>

#include "backends/cpu/kernels/family_spec.h"
#include "base/half.h"

namespace mantou::cpu {

// What the code of row r, column c (0…31) of a group stands for: the table's value or the code less
// the family's offset.
inline int code_value(const uint8_t* group, const FamilySpec& spec, int r, int c) {
  const int j = c / 4, at = 4 * r + c % 4;
  const int pair_shift = 2 * (j & 3);  // of two-bit codes
  int code = 0;
  if (spec.bits == 8)
    code = group[64 * j + at];
  else if (spec.bits >= 4)
    code = group[64 * (j & 3) + at] >> (j / 4 * 4) & 15;
  else
    code = group[64 * (j / 4) + at] >> pair_shift & 3;
  if (spec.bits == 3) code |= (group[128 + at] >> j & 1) << 2;
  if (spec.bits == 5) code |= (group[256 + at] >> j & 1) << 4;
  if (spec.bits == 6) code |= (group[256 + 64 * (j / 4) + at] >> pair_shift & 3) << 4;
  if (spec.table != CodeTable::kNone) return code_table(spec.table)[code];
  return code - spec.offset();
}

inline float f16_at(const uint8_t* halves, int r) {
  uint16_t half;
  std::memcpy(&half, halves + 2 * r, 2);
  return f16_to_f32(half);
}

// Scale or min of row r of a set of 16 that has no nibbles.
inline float scale_value(const uint8_t* set, ScaleKind kind, int r) {
  switch (kind) {
    case ScaleKind::kF16:
      return f16_at(set, r);
    case ScaleKind::kBF16: {
      uint16_t half;
      std::memcpy(&half, set + 2 * r, 2);
      return bf16_to_f32(half);
    }
    case ScaleKind::kF32: {
      float value;
      std::memcpy(&value, set + 4 * r, 4);
      return value;
    }
    case ScaleKind::kU8:
      return float(set[r]);
    case ScaleKind::kI8:
    case ScaleKind::kI8Per16:
      return float(int8_t(set[r]));
    case ScaleKind::kU4Per16:
      return float(set[r] & 15);  // the scale; the min is the high nibble
  }
  return 0;
}

}  // namespace mantou::cpu
