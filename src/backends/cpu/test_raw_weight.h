// Weights of tests, made of f32 values that the test keeps alive.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/raw_tensor.h"

namespace mantou::cpu {

inline RawWeight raw_f32(const std::vector<float>& values, int64_t rows) {
  RawWeight weight;
  weight.rows = rows;
  weight.cols = int64_t(values.size()) / rows;
  weight.data.name = "test";
  weight.data.shape = {weight.rows, weight.cols};
  weight.data.bytes = std::as_bytes(std::span(values));
  return weight;
}

}  // namespace mantou::cpu
