// Activation memory of the cpu backend: f32 buffers that Tensors share and give back.
//
// A step uses the same few sizes once a layer, and the next step mostly the same ones again: freed
// buffers are kept and reused, so a steady state allocates nothing from the system. But steps of a
// server have ever other numbers of tokens, and what one of them needed is of no use to most: so a
// step leaves what it used itself, and of older buffers a reserve. Engine thread only; the pool
// outlives its Tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tensor/tensor.h"

namespace mantou::cpu {

class BufferPool {
 public:
  // reserve_bytes: of free buffers that the last step did not use.
  explicit BufferPool(size_t reserve_bytes = size_t{16} << 20) : reserve_bytes_(reserve_bytes) {}
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // An uninitialised [rows, cols] tensor, 64-byte aligned.
  Tensor make(int64_t rows, int64_t cols);

  // The buffers that have been free for longest go back to the system, except for what this step
  // used and the reserve.
  void end_step();

  size_t held_bytes() const { return held_bytes_; }  // of Tensors and free buffers

 private:
  struct Free {
    size_t bytes;
    void operator()(float* p) const;
  };
  using Buffer = std::unique_ptr<float[], Free>;

  static Buffer allocate(size_t bytes);
  Buffer take(size_t bytes);  // a free one; null: none has this size

  const size_t reserve_bytes_;
  std::vector<Buffer> free_;  // in the order in which they became free
  size_t unused_ = 0;         // so many of the first are free since before this step
  size_t held_bytes_ = 0;
};

inline float* data(const Tensor& t) { return static_cast<float*>(t.storage()); }
inline float* row(const Tensor& t, int64_t r) { return data(t) + r * t.cols(); }

}  // namespace mantou::cpu
