// Which instruction set the kernels use on this machine. Every kernel family exists for each set
// with bit-equal results, so the choice is one of speed alone. Pure functions; any thread.
#pragma once

#include <string_view>

namespace mantou {

// Ordered: a machine that has one also has the ones before it.
//   kAvx2   AVX2, FMA, F16C
//   kAvx512 AVX-512 F, BW, CD, DQ, VL, VNNI
enum class Isa { kScalar, kAvx2, kAvx512 };

// "scalar", "avx2", "avx512".
std::string_view isa_name(Isa isa);

// The best set that the processor and the operating system support.
Isa detected_isa();

// detected_isa(), lowered to what the environment variable MANTOU_CPU_ISA names. An unknown name is
// an Error (kInvalidArgument); a set that the machine lacks is lowered to what it has.
Isa isa_from_environment();

}  // namespace mantou
