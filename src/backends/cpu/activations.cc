#include "backends/cpu/activations.h"

#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/quantize.h"

namespace mantou::cpu {

MatmulInput Activations::prepare(const Tensor& x, const Norm* norm, const float* scale,
                                 Forms forms) {
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

  const auto prepare_row = [&](int r, int thread) {
    const float* v = row(x, r);
    if (norm) {
      float* const out = normed + stride * size_t(thread);
      rms_norm(table_, v, scale, norm->eps, norm->plus_one, cols, out);
      v = out;
    }
    if (quantized) quantize_row(table_, v, cols, r, rows, quantized);
    if (panels) panel_row(table_, v, cols, r, rows, panels);
  };
  if (x.rows() * x.cols() < kSerialFloats || rows == 1)
    for (int r = 0; r < rows; r++) prepare_row(r, 0);
  else
    pool_.run(rows, prepare_row);
  return {rows, cols, quantized, panels};
}

}  // namespace mantou::cpu
