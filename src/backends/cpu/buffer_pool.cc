#include "backends/cpu/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "base/error.h"

namespace mantou::cpu {
namespace {

// Buffers from this size on are mappings of their own. Those of a heap would leave it with holes,
// and what lies behind a hole stays with the process.
constexpr size_t kMapped = size_t{256} << 10;

// Sizes are rounded up to eighths of a power of two, so that neighbouring sizes share buffers.
size_t rounded_up(size_t floats) {
  const size_t step = std::max<size_t>(16, std::bit_floor(floats) / 8);
  return (floats + step - 1) / step * step;
}

}  // namespace

void BufferPool::Free::operator()(float* p) const {
  if (bytes < kMapped)
    std::free(p);
  else
    munmap(p, bytes);
}

BufferPool::Buffer BufferPool::allocate(size_t bytes) {
  void* p = nullptr;
  if (bytes < kMapped) {
    p = std::aligned_alloc(64, bytes);
  } else {
    p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) p = nullptr;
  }
  if (!p) fail(ErrorCode::kResourceExhausted, "no memory for {} MB of activations", bytes >> 20);
  return Buffer(static_cast<float*>(p), Free{bytes});
}

BufferPool::Buffer BufferPool::take(size_t bytes) {
  const auto found = std::find_if(free_.rbegin(), free_.rend(), [&](const Buffer& buffer) {
    return buffer.get_deleter().bytes == bytes;
  });
  if (found == free_.rend()) return Buffer(nullptr, Free{0});
  const auto at = std::prev(found.base());
  if (size_t(at - free_.begin()) < unused_) unused_--;
  Buffer buffer = std::move(*at);
  free_.erase(at);
  return buffer;
}

Tensor BufferPool::make(int64_t rows, int64_t cols) {
  const size_t floats = rounded_up(std::max<size_t>(size_t(rows) * size_t(cols), 16));
  const size_t bytes = floats * sizeof(float);
  Buffer buffer = take(bytes);
  if (!buffer) {
    buffer = allocate(bytes);
    held_bytes_ += bytes;
  }
  return Tensor(rows, cols, std::shared_ptr<void>(buffer.release(), [this, bytes](float* freed) {
                  free_.push_back(Buffer(freed, Free{bytes}));
                }));
}

void BufferPool::end_step() {
  size_t spare = 0;
  for (size_t i = 0; i < unused_; i++) spare += free_[i].get_deleter().bytes;
  size_t gone = 0;
  for (; spare > reserve_bytes_; gone++) {
    spare -= free_[gone].get_deleter().bytes;
    held_bytes_ -= free_[gone].get_deleter().bytes;
  }
  free_.erase(free_.begin(), free_.begin() + std::ptrdiff_t(gone));
  unused_ = free_.size();
}

}  // namespace mantou::cpu
