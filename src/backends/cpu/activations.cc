#include "backends/cpu/activations.h"

#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/quantize.h"
#include "backends/cpu/weight_storage.h"

namespace mantou::cpu {

MatmulInput Activations::prepare(const Tensor& x, const Norm* norm, Forms forms) {
  memory_.reset();
  const int rows = int(x.rows()), cols = int(x.cols());
  QuantizedBlock* const quantized =
      forms.quantized ? memory_.allocate_array<QuantizedBlock>(quantized_blocks(table_, rows, cols))
                      : nullptr;
  float* const panels =
      forms.panels ? memory_.allocate_array<float>(panel_floats(table_, rows, cols)) : nullptr;
  const size_t stride = (size_t(cols) + 15) / 16 * 16;
  float* const normed =
      norm ? memory_.allocate_array<float>(stride * size_t(pool_.threads())) : nullptr;

  for_rows(x, [&](int64_t r, int thread) {
    const float* v = row(x, r);
    if (norm) {
      float* const out = normed + stride * size_t(thread);
      apply_norm(table_, *norm, v, cols, out);
      v = out;
    }
    if (quantized) quantize_row(table_, v, cols, int(r), rows, quantized);
    if (panels) panel_row(table_, v, cols, int(r), rows, panels);
  });
  return {rows, cols, quantized, panels};
}

}  // namespace mantou::cpu
