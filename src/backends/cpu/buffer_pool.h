// Activation memory of the cpu backend: f32 buffers that Tensors share and give back.
//
// A step uses the same few sizes over and over; freed buffers are kept and reused, so a steady
// state allocates nothing from the system. Engine thread only; the pool outlives its Tensors.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tensor/tensor.h"

namespace mantou::cpu {

class BufferPool {
 public:
  // An uninitialised [rows, cols] tensor, 64-byte aligned.
  Tensor make(int64_t rows, int64_t cols);

 private:
  struct Free {
    void operator()(float* p) const;
  };
  using Buffer = std::unique_ptr<float[], Free>;
  std::map<size_t, std::vector<Buffer>> free_;  // by capacity in floats
};

inline float* data(const Tensor& t) { return static_cast<float*>(t.storage()); }
inline float* row(const Tensor& t, int64_t r) { return data(t) + r * t.cols(); }

}  // namespace mantou::cpu
