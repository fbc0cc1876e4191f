#include "backends/cpu/kernels/vector_avx512.h"

namespace mantou::cpu {
namespace {
constexpr int kMaxRows = 12;  // 12 x 2 sums leave 8 of the 32 registers to weights and broadcasts
constexpr int kFewRows = 12;  // up to so many, weights are read as they are stored
constexpr int kFewSums = 24;  // registers of such a kernel
}  // namespace
}  // namespace mantou::cpu

// Vector and the constants come first.
#include "backends/cpu/kernels/dense_tile_impl.h"

namespace mantou::cpu {

void add_dense_tiles_avx512(KernelTable& table) { add_dense_tiles(table); }

}  // namespace mantou::cpu
