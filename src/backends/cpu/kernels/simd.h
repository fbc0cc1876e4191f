// The intrinsics of x86 for the translation units of one instruction set.
#pragma once

// g++ 12 takes the undefined operands of its own AVX-512 intrinsics for mistakes of the caller.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#define MANTOU_UNROLL _Pragma("GCC unroll 16")
#define MANTOU_INLINE [[gnu::always_inline]] inline
