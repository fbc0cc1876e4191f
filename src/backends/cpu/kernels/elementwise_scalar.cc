#include "backends/cpu/kernels/vector_scalar.h"
// The vector type comes first.
#include "backends/cpu/kernels/elementwise_impl.h"

namespace mantou::cpu {

void add_elementwise_scalar(KernelTable& table) { add_elementwise(table); }

}  // namespace mantou::cpu
