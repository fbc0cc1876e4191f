#include "backends/cpu/kernels/kernel_table.h"

#include "backends/cpu/kernels/kernel_sets.h"

namespace mantou::cpu {
namespace {

KernelTable make_scalar() {
  KernelTable table{};
  table.name = isa_name(Isa::kScalar);
  add_integer_tiles_scalar(table);
  add_dense_tiles_scalar(table);
  add_quantize_scalar(table);
  add_elementwise_scalar(table);
  return table;
}

#if defined(__x86_64__)
KernelTable make_avx2() {
  KernelTable table{};
  table.name = isa_name(Isa::kAvx2);
  add_integer_tiles_avx2(table);
  add_dense_tiles_avx2(table);
  add_quantize_avx2(table);
  add_elementwise_avx2(table);
  return table;
}

KernelTable make_avx512() {
  KernelTable table{};
  table.name = isa_name(Isa::kAvx512);
  add_integer_tiles_vnni256(table);
  add_integer_tiles_avx512(table);
  add_dense_tiles_avx512(table);
  add_quantize_avx2(table);
  add_elementwise_avx512(table);
  return table;
}
#endif

}  // namespace

const KernelTable* kernels_for(Isa isa) {
  if (isa > detected_isa()) return nullptr;
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512: {
      static const KernelTable table = make_avx512();
      return &table;
    }
    case Isa::kAvx2: {
      static const KernelTable table = make_avx2();
      return &table;
    }
#endif
    default: {
      static const KernelTable table = make_scalar();
      return &table;
    }
  }
}

const KernelTable& kernels() {
  static const KernelTable& table = *kernels_for(isa_from_environment());
  return table;
}

}  // namespace mantou::cpu
