#include "backends/cpu/kernels/integer_tile_256.h"

namespace mantou::cpu {

void add_integer_tiles_avx2(KernelTable& table) {
  const MakeIndexList<kIntegerFamilies>::Type families;
  table.quantized_panel = 8;
  fill<0>(table, families);
  fill<1>(table, families);
  fill<2>(table, families);
  fill<3>(table, families);
  fill<4>(table, families);
  fill<5>(table, families);
}

}  // namespace mantou::cpu
