// What the cpu backend keeps of a Weight, by use. Immutable.
#pragma once

#include <utility>
#include <vector>

#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/packed_weight.h"
#include "base/raw_tensor.h"
#include "tensor/weight.h"

namespace mantou::cpu {

struct MatrixStorage final : WeightStorage {
  explicit MatrixStorage(PackedMatrix m) : matrix(m) {}
  PackedMatrix matrix;
};

struct ExpertStorage final : WeightStorage {
  std::vector<PackedMatrix> matrices;
};

struct VectorStorage final : WeightStorage {
  std::vector<float> values;
};

struct TableStorage final : WeightStorage {
  explicit TableStorage(RawWeight w) : raw(std::move(w)) {}
  RawWeight raw;  // stays mapped: only rows are looked up
};

inline const PackedMatrix& matrix_of(const Weight& weight) {
  return static_cast<const MatrixStorage*>(weight.storage())->matrix;
}

inline const PackedMatrix& expert_of(const Weight& weight, size_t expert) {
  return static_cast<const ExpertStorage*>(weight.storage())->matrices[expert];
}

inline const float* vector_of(const Weight& weight) {
  return static_cast<const VectorStorage*>(weight.storage())->values.data();
}

// The norm of x[n] with the part of its scale that starts at `offset`; out may be x.
inline void apply_norm(const KernelTable& table, const Norm& norm, const float* x, int n,
                       float* out, int64_t offset = 0) {
  const float* const scale = norm.scale ? vector_of(norm.scale) + offset : nullptr;
  if (norm.kind == NormKind::kRms)
    rms_norm(table, x, scale, norm.eps, norm.plus_one && scale, n, out);
  else
    layer_norm(table, x, scale, norm.bias ? vector_of(*norm.bias) + offset : nullptr, norm.eps, n,
               out);
  if (norm.scale_factor != 1) cpu::scale(table, out, norm.scale_factor, n, out);
}

}  // namespace mantou::cpu
