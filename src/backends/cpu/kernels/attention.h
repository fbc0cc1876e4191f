// Attention of the cpu backend over KvRows: append a step's keys and values, then attend.
//
// Both calls take the flat batch of a step: ragged rows, decode rows and prefill chunks together.
// The result of a query depends on its own row's tokens alone, to the last bit: not on how its
// prompt was chunked, on the other rows, on the number of threads or on the instruction set. Keys
// are visited in tiles of 64 at absolute positions and splits of 512, merged in order; every sum is
// one chain of fused multiply-adds in f32, except that 16 lanes sum the exponentials. (Chunking may
// matter when values are NaN or infinite; then results are NaN somewhere in the row anyway.) Engine
// thread; work is spread over the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backends/cpu/kv_rows.h"
#include "base/cpu_features.h"
#include "tensor/step_layout.h"

namespace mantou {
class ThreadPool;
}

namespace mantou::cpu {

struct AttentionParams {
  int heads = 0;                 // query heads: a multiple of the state's kv_heads
  float scale = 1;               // of the logits
  float softcap = 0;             // > 0: logits become softcap · tanh(logit / softcap)
  int64_t window = 0;            // > 0: a query sees the last `window` tokens, itself included
  std::span<const float> sinks;  // one more logit per query head, without a value; or empty
};

// Scratch memory of attend(), kept by the caller for as long as it likes and used by one call at a
// time. Grows to what the largest call needs; steady state allocates nothing.
class AttentionWorkspace {
 public:
  // parts_budget: bytes of partial results that a call may keep at a time (if one split of each
  // tile needs more, that much).
  explicit AttentionWorkspace(size_t parts_budget = size_t{32} << 20);
  ~AttentionWorkspace();

 private:
  friend class AttentionRun;
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

// Writes the step's tokens; once a step, after state.begin_step(layout).
// k, v: [total_tokens, kv_heads, head_dim] f32, rope applied. Rounds to nearest even; f16 stores
// values beyond ±65504 as ±65504.
void append_kv(ThreadPool& pool, KvRows& state, const StepLayout& layout, std::span<const float> k,
               std::span<const float> v, mantou::Isa isa);

// q, out: [total_tokens, heads, head_dim] f32. Query i of a layout row stands at position + i and
// sees keys up to its own, which must have been appended: by this step, or earlier (a layer that
// reads a donor's state calls attend alone). params.window may not exceed the state's window if
// that has one.
void attend(ThreadPool& pool, AttentionWorkspace& workspace, const KvRows& state,
            const AttentionParams& params, const StepLayout& layout, std::span<const float> q,
            std::span<float> out, mantou::Isa isa);

}  // namespace mantou::cpu
