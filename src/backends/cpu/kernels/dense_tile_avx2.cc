#include "backends/cpu/kernels/vector_avx2.h"

namespace mantou::cpu {
namespace {
constexpr int kMaxRows = 6;  // 6 x 2 sums, 2 weights and a broadcast fill the 16 registers
constexpr int kFewRows = 4;  // up to so many, weights are read as they are stored
constexpr int kFewSums = 8;  // registers of such a kernel
}  // namespace
}  // namespace mantou::cpu

// Vector and the constants come first.
#include "backends/cpu/kernels/dense_tile_impl.h"

namespace mantou::cpu {

void add_dense_tiles_avx2(KernelTable& table) { add_dense_tiles(table); }

}  // namespace mantou::cpu
