#include "backends/cpu/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "base/error.h"

namespace mantou::cpu {

void BufferPool::Free::operator()(float* p) const { std::free(p); }

Tensor BufferPool::make(int64_t rows, int64_t cols) {
  const size_t floats = std::max<size_t>(size_t(rows) * size_t(cols), 16);
  // Sizes are rounded up to eighths of a power of two, so that neighbouring sizes share buffers.
  const size_t step = std::max<size_t>(16, std::bit_floor(floats) / 8);
  const size_t capacity = (floats + step - 1) / step * step;
  std::vector<Buffer>& spare = free_[capacity];
  Buffer buffer;
  if (spare.empty()) {
    buffer.reset(static_cast<float*>(std::aligned_alloc(64, capacity * sizeof(float))));
    if (!buffer)
      fail(ErrorCode::kResourceExhausted, "no memory for {} MB of activations",
           capacity * sizeof(float) >> 20);
  } else {
    buffer = std::move(spare.back());
    spare.pop_back();
  }
  float* const p = buffer.release();
  return Tensor(rows, cols, std::shared_ptr<void>(p, [&spare](float* freed) {
                  spare.push_back(Buffer(freed));
                }));
}

}  // namespace mantou::cpu
