// Activations on their way into a matrix product: normalised, then quantized or laid out in panels,
// each row once for all matrices that read it. Owned by the cpu backend; engine thread.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu/buffer_pool.h"
#include "backends/cpu/kernels/matmul.h"
#include "base/arena.h"
#include "base/thread_pool.h"
#include "tensor/weight.h"

namespace mantou::cpu {

class Activations {
 public:
  struct Forms {
    bool quantized = false, panels = false;
  };

  Activations(const KernelTable& table, ThreadPool& pool) : table_(table), pool_(pool) {}

  // f(row, thread) for each row of x: on the calling thread when there is little to do, else spread
  // out.
  template <class F>
  void for_rows(const Tensor& x, const F& f) {
    if (x.rows() * x.cols() < kSerialFloats || x.rows() == 1) {
      for (int64_t t = 0; t < x.rows(); t++) f(t, 0);
      return;
    }
    pool_.run(int(x.rows()), [&](int chunk, int thread) { f(int64_t(chunk), thread); });
  }

  // The asked forms of norm ? norm(x) : x, valid until the next call.
  MatmulInput prepare(const Tensor& x, const Norm* norm, Forms forms);

 private:
  // Below this a fork-join costs more than it saves.
  static constexpr int64_t kSerialFloats = 8192;

  const KernelTable& table_;
  ThreadPool& pool_;
  Arena memory_{size_t{4} << 20};
};

}  // namespace mantou::cpu
