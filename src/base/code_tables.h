// What the codes of the table formats stand for. Constants; usable in units of any instruction set.
#pragma once

#include <cstdint>

namespace mantou {

// IQ4_NL and IQ4_XS: 16 levels, denser near zero (ggml's kvalues_iq4nl).
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// E2M1 of the OCP Microscaling formats (sign, two bits of exponent, one of mantissa), doubled.
inline constexpr int8_t kE2m1Doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace mantou
