// Attention of the cpu backend: bench_attention [decode|prefill|append]
//
// decode: one token against a context, over layers whose cache exceeds the last-level cache where
// that is possible; reported with the share of a plain read of the same blocks by the same threads.
// prefill: 512 tokens behind a context. append: writing 1 and 512 tokens. Medians.
// MANTOU_CPU_ISA lowers the instruction set, MANTOU_BENCH_THREADS sets the threads.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kv_rows.h"
#include "base/cpu_count.h"
#include "base/cpu_features.h"
#include "base/thread_pool.h"

namespace mantou::cpu {
namespace {

struct Shape {
  int head_dim;
  int group;
  int kv_heads;
};
constexpr Shape kShapes[] = {{64, 3, 3},  {64, 7, 2},  {128, 2, 8},
                             {128, 4, 8}, {128, 8, 4}, {256, 4, 1}};
constexpr size_t kCacheBytes = size_t{256} << 20;  // over all layers of a decode

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<float> noise(size_t n) {
  std::vector<float> values(n);
  uint32_t x = 1;
  for (float& value : values) {
    x = x * 1664525 + 1013904223;
    value = float(int32_t(x)) * 0x1p-31f;
  }
  return values;
}

StepLayout one_row(int64_t position, int count) {
  return StepLayout{{StepRow{0, 0, count, position}}, count};
}

// Layers of one row with `context` tokens each.
struct Layers {
  std::shared_ptr<KvBlockPool> pool = KvBlockPool::create();
  std::vector<KvRows> states;
  AttentionParams params;

  Layers(ThreadPool& threads, const Shape& shape, KvType type, int context, size_t bytes) {
    const StateSpec spec{shape.kv_heads, shape.head_dim, 0, type};
    params.heads = shape.kv_heads * shape.group;
    params.scale = 1 / std::sqrt(float(shape.head_dim));
    const size_t layer_bytes = KvRows(spec, pool).projected_bytes(context);
    const int layers = std::max<int>(1, bytes / layer_bytes);
    for (int i = 0; i < layers; i++) {
      states.emplace_back(spec, pool);
      states.back().add_row();
    }
    // Layers in turn, as steps do, so that their blocks interleave in memory.
    const std::vector<float> kv = noise(size_t(512) * shape.kv_heads * shape.head_dim);
    for (int done = 0; done < context; done += 512) {
      for (KvRows& state : states) append(threads, state, std::min(512, context - done), kv);
    }
  }

  static void append(ThreadPool& threads, KvRows& state, int count, const std::vector<float>& kv) {
    const StepLayout layout = one_row(state.tokens(0), count);
    const std::span<const float> values(
        kv.data(), size_t(count) * state.spec().kv_heads * state.spec().head_dim);
    state.begin_step(layout);
    append_kv(threads, state, layout, values, values, isa_from_environment());
    state.commit_step();
  }

  size_t layer_bytes() const { return states[0].bytes(0); }
};

// Seconds to read all blocks once.
double read_time(ThreadPool& threads, const Layers& layers) {
  const int blocks = int(layers.states[0].view(0).blocks.size());
  const size_t words = layers.states[0].layout().block_bytes / 8;
  std::vector<uint64_t> sums(threads.threads() * 8);
  const double start = seconds();
  threads.run(int(layers.states.size()), [&](int layer, int thread) {
    uint64_t sum[8] = {};
    for (int b = 0; b < blocks; b++) {
      const std::byte* data = layers.states[layer].view(0).blocks[b];
      for (size_t i = 0; i < words; i += 8) {
        __builtin_prefetch(data + i * 8 + 4096);
        uint64_t line[8];
        std::memcpy(line, data + i * 8, 64);
        for (int j = 0; j < 8; j++) sum[j] += line[j];
      }
    }
    for (int j = 0; j < 8; j++) sums[thread * 8] += sum[j];
  });
  volatile uint64_t keep = sums[0];
  (void)keep;
  return seconds() - start;
}

double attend_time(ThreadPool& threads, AttentionWorkspace& workspace, const Layers& layers,
                   const StepLayout& layout, const std::vector<float>& q, std::vector<float>& out) {
  const double start = seconds();
  for (const KvRows& state : layers.states) {
    attend(threads, workspace, state, layers.params, layout, q, out, isa_from_environment());
  }
  return seconds() - start;
}

void bench_decode(ThreadPool& threads) {
  AttentionWorkspace workspace;
  for (const Shape& shape : kShapes) {
    for (int context : {2048, 8192}) {
      for (KvType type : {KvType::kF16, KvType::kBF16, KvType::kF32}) {
        const Layers layers(threads, shape, type, context, kCacheBytes);
        const auto q = noise(size_t(layers.params.heads) * shape.head_dim);
        std::vector<float> out(q.size());
        std::vector<double> times, shares;
        for (int i = 0; i < 9; i++) {
          const double read = read_time(threads, layers);
          times.push_back(attend_time(threads, workspace, layers, one_row(context - 1, 1), q, out));
          shares.push_back(read / times.back());
        }
        const double time = median(times) / double(layers.states.size());
        fmt::print("{:28} context {:5} {:8.1f} us {:5.1f} GB/s {:4.0f} % of a plain read\n",
                   fmt::format("{} group {}", layers.states[0].spec().signature(), shape.group),
                   context, time * 1e6, double(layers.layer_bytes()) / time / 1e9,
                   median(shares) * 100);
        std::fflush(stdout);
      }
    }
  }
}

void bench_prefill(ThreadPool& threads) {
  constexpr int kTokens = 512;
  AttentionWorkspace workspace;
  for (const Shape& shape : kShapes) {
    for (int depth : {0, 2048, 8192}) {
      const Layers layers(threads, shape, KvType::kF16, depth + kTokens, 1);
      const auto q = noise(size_t(kTokens) * layers.params.heads * shape.head_dim);
      std::vector<float> out(q.size());
      std::vector<double> times;
      for (int i = 0; i < 5; i++) {
        times.push_back(attend_time(threads, workspace, layers, one_row(depth, kTokens), q, out));
      }
      const double keys = kTokens * (depth + (kTokens + 1) / 2.0);
      const double flops = 4.0 * keys * layers.params.heads * shape.head_dim;
      fmt::print("{:28} depth {:5} {:8.2f} ms {:6.1f} GFLOP/s\n",
                 fmt::format("{} group {}", layers.states[0].spec().signature(), shape.group),
                 depth, median(times) * 1e3, flops / median(times) / 1e9);
      std::fflush(stdout);
    }
  }
}

// Into memory that was used before, by now out of the caches.
void bench_append(ThreadPool& threads) {
  for (const Shape& shape : kShapes) {
    Layers layers(threads, shape, KvType::kF16, 1000, kCacheBytes / 2);
    const auto kv = noise(size_t(512) * shape.kv_heads * shape.head_dim);
    for (int count : {1, 512}) {
      double time = 0;
      for (int round = 0; round < 2; round++) {
        const double start = seconds();
        for (KvRows& state : layers.states) Layers::append(threads, state, count, kv);
        time = seconds() - start;
        for (KvRows& state : layers.states) state.trim(0, count);
      }
      fmt::print("{:28} {:3} tokens {:8.2f} us a layer\n", layers.states[0].spec().signature(),
                 count, time / double(layers.states.size()) * 1e6);
    }
  }
}

}  // namespace
}  // namespace mantou::cpu

int main(int argc, char** argv) {
  using namespace mantou;
  const std::string what = argc > 1 ? argv[1] : "decode";
  const char* wanted = std::getenv("MANTOU_BENCH_THREADS");
  ThreadPool threads(wanted ? std::atoi(wanted) : default_thread_count());
  fmt::print("{} threads, {}\n", threads.threads(), isa_name(isa_from_environment()));
  if (what == "decode") {
    cpu::bench_decode(threads);
  } else if (what == "prefill") {
    cpu::bench_prefill(threads);
  } else if (what == "append") {
    cpu::bench_append(threads);
  } else {
    fmt::print(stderr, "usage: bench_attention [decode|prefill|append]\n");
    return 2;
  }
}
