// One f32 in the vocabulary of vector_avx2.h: the specification of the kernels written with it.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace mantou::cpu {
namespace {

struct Vector {
  static constexpr int kWidth = 1;
  using F = float;
  using Mask = bool;

  static F load(const float* p) { return *p; }
  static void store(float* p, F v) { *p = v; }
  static F set(float v) { return v; }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  static F fma(F a, F b, F c) { return std::fma(a, b, c); }     // a·b + c, rounded once
  static F fmsub(F a, F b, F c) { return std::fma(a, b, -c); }  // a·b − c
  static F min(F a, F b) { return a < b ? a : b; }              // b when either is NaN
  static F max(F a, F b) { return a > b ? a : b; }
  static F abs(F a) { return std::fabs(a); }
  static F copy_sign(F magnitude, F sign) { return std::copysign(magnitude, sign); }
  static Mask less(F a, F b) { return a < b; }
  static Mask equal(F a, F b) { return a == b; }
  static Mask is_nan(F a) { return a != a; }
  static Mask any_of(Mask a, Mask b) { return a || b; }
  static F select(Mask m, F yes, F no) { return m ? yes : no; }
  static unsigned bits(Mask m) { return m ? 1u : 0u; }

  // 2^n for integer-valued n in [−126, 127].
  static F power_of_two(F n) { return std::bit_cast<float>(uint32_t(int32_t(n) + 127) << 23); }
};

}  // namespace
}  // namespace mantou::cpu
