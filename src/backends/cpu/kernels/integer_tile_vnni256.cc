// Few rows are bound by memory, and 256-bit vectors read it fastest; see integer_tile_avx512.cc for
// more.
#include "backends/cpu/kernels/integer_tile_256.h"

namespace mantou::cpu {

void add_integer_tiles_vnni256(KernelTable& table) {
  const MakeIndexList<kIntegerFamilies>::Type families;
  fill<0>(table, families);
  fill<1>(table, families);
  fill<2>(table, families);
  fill<3>(table, families);
}

}  // namespace mantou::cpu
