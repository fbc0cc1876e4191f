#include "backends/cpu/kernels/vector_avx512.h"

namespace mantou::cpu {
namespace {
constexpr int kMaxRows = 12;  // 12 x 2 sums leave 8 of the 32 registers to weights and broadcasts
}  // namespace
}  // namespace mantou::cpu

// Vector and kMaxRows come first.
#include "backends/cpu/kernels/dense_tile_impl.h"

namespace mantou::cpu {

void add_dense_tiles_avx512(KernelTable& table) { add_dense_tiles(table); }

}  // namespace mantou::cpu
