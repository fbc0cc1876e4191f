// What each instruction set's translation units contribute to a KernelTable. Internal to kernels/.
//
// A unit named *_avx2.cc, *_vnni256.cc or *_avx512.cc is compiled for that set and entered only on
// a CPU that has it. Its code lives in anonymous namespaces and uses nothing from the standard
// library, so that no inline function compiled for one set can be linked into code that runs
// everywhere.
#pragma once

#include "backends/cpu/kernels/kernel_table.h"

namespace mantou::cpu {

void add_integer_tiles_scalar(KernelTable& table);
void add_integer_tiles_avx2(KernelTable& table);
void add_integer_tiles_vnni256(KernelTable& table);  // panels of 1 to 4 rows
void add_integer_tiles_avx512(KernelTable& table);   // larger panels

void add_dense_tiles_scalar(KernelTable& table);
void add_dense_tiles_avx2(KernelTable& table);
void add_dense_tiles_avx512(KernelTable& table);

void add_quantize_scalar(KernelTable& table);
void add_quantize_avx2(KernelTable& table);

void add_elementwise_scalar(KernelTable& table);
void add_elementwise_avx2(KernelTable& table);
void add_elementwise_avx512(KernelTable& table);

// Calls add(index constant) for each index: a table filled from templates.
template <int... kIndex>
struct IndexList {};
template <int kCount, int... kIndex>
struct MakeIndexList : MakeIndexList<kCount - 1, kCount - 1, kIndex...> {};
template <int... kIndex>
struct MakeIndexList<0, kIndex...> {
  using Type = IndexList<kIndex...>;
};

}  // namespace mantou::cpu
