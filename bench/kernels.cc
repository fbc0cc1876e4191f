// Speed of the cpu backend's matrix kernels beside a plain read of the same memory.
//
//   kernels gemv  [format…]   M = 1: GB/s of weights and percent of a plain read, 1 thread and all
//   kernels batch [format…]   M = 1 … 16: time relative to M = 1
//   kernels gemm  [format…]   M = 512: billions of multiplications and additions a second
//   kernels pack  [format…]   GB/s of stored bytes packed from memory
//   kernels rows              elementwise kernels: nanoseconds a row
//   kernels fork              an empty parallel region: nanoseconds
//
// Weights are many copies of one matrix, together larger than the caches (MANTOU_BENCH_MB, default
// 1024), so that they come from memory. Figures are medians of repeats, each with its own plain
// read just before, since the bandwidth of shared machines drifts. MANTOU_CPU_ISA selects the
// instruction set.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/kernels/quantize.h"
#include "backends/cpu/kernels/test_weights.h"
#include "base/cpu_count.h"

namespace mantou::cpu {
namespace {

constexpr int kRepeats = 7;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Least seconds of one call of many, for short bodies that other processes disturb.
double time_of(const std::function<void()>& body, int repeats) {
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) {
    const double start = seconds();
    body();
    best = std::min(best, seconds() - start);
  }
  return best;
}

size_t working_set() {
  const char* megabytes = std::getenv("MANTOU_BENCH_MB");
  return (megabytes == nullptr ? size_t(1024) : size_t(std::atoll(megabytes))) << 20;
}

// GB/s of reading [data, data + bytes) once, in chunks as the kernels do.
double plain_read(ThreadPool& pool, const std::byte* data, size_t bytes) {
  constexpr size_t kChunk = size_t(1) << 20;
  std::vector<uint64_t> sink(size_t(pool.threads()) * 8);
  const double start = seconds();
  pool.run(int(bytes / kChunk), [&](int chunk, int thread) {
    const auto* words = reinterpret_cast<const uint64_t*>(data + size_t(chunk) * kChunk);
    uint64_t sums[16] = {};
    for (size_t i = 0; i < kChunk / 8; i += 16) {
      __builtin_prefetch(words + i + 64);
      __builtin_prefetch(words + i + 72);
      for (size_t j = 0; j < 16; ++j) sums[j] ^= words[i + j];
    }
    for (uint64_t sum : sums) sink[size_t(thread) * 8] ^= sum;
  });
  const double elapsed = seconds() - start;
  volatile uint64_t keep = sink[0];
  (void)keep;
  return double(bytes) / elapsed / 1e9;
}

WeightFormat format_named(const std::string& name) {
  std::vector<WeightFormat> formats = integer_formats();
  for (const WeightFormat& format : dense_formats()) formats.push_back(format);
  for (const WeightFormat& format : formats)
    if (format.name == name) return format;
  fmt::print(stderr, "unknown format {}; one of:", name);
  for (const WeightFormat& format : formats) fmt::print(stderr, " {}", format.name);
  fmt::print(stderr, "\n");
  std::exit(2);
}

// Copies of one packed matrix that fill the working set.
struct Copies {
  Arena arena;
  std::vector<PackedMatrix> matrices;
  size_t bytes = 0;

  Copies(const WeightFormat& format, int rows, int cols, ThreadPool& pool, size_t total) {
    PackedMatrix matrix = pack(random_weight(format, rows, cols, 1), arena, pool);
    bytes = matrix.bytes();
    const size_t count = std::max<size_t>(1, total / bytes);
    std::byte* data = arena.allocate(count * bytes);
    for (size_t i = 0; i < count; ++i, data += bytes) {
      std::memcpy(data, matrix.data, bytes);
      matrix.data = data;
      matrices.push_back(matrix);
    }
  }
};

// Activations of M rows and where the outputs go.
struct Rows {
  const KernelTable& table;
  int rows, cols;
  std::vector<float> x, y, panels;
  std::vector<QuantizedBlock> quantized;

  Rows(const KernelTable& t, int m, int k, int n)
      : table(t),
        rows(m),
        cols(k),
        x(size_t(m) * size_t(k)),
        y(size_t(m) * size_t(n)),
        panels(panel_floats(t, m, k)),
        quantized(quantized_blocks(t, m, k)) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& value : x) value = normal(random);
  }

  // Brings x into the matrix' form and multiplies.
  void multiply(ThreadPool& pool, const PackedMatrix& w) {
    pool.run(rows, [&](int m, int) {
      const float* row = x.data() + size_t(m) * size_t(cols);
      if (is_dense(w.family))
        panel_row(table, row, cols, m, rows, panels.data());
      else
        quantize_row(table, row, cols, m, rows, quantized.data());
    });
    matmul(table, pool, w, {rows, cols, quantized.data(), panels.data()}, y.data(), size_t(w.rows));
  }
};

double seconds_per_matrix(ThreadPool& pool, const Copies& copies, Rows& rows) {
  const double start = seconds();
  for (const PackedMatrix& w : copies.matrices) rows.multiply(pool, w);
  return (seconds() - start) / double(copies.matrices.size());
}

struct Shape {
  int rows, cols;
};

void gemv(const std::vector<WeightFormat>& formats, ThreadPool& all) {
  ThreadPool one(1);
  fmt::print("{:14} {:>14} {:>7}   1 thread: read  GB/s    %   {} threads: read  GB/s    %\n",
             "format", "rows x cols", "MB", all.threads());
  for (const WeightFormat& format : formats) {
    for (const Shape shape : {Shape{4096, 4096}, {1536, 768}, {768, 2048}, {131072, 1024}}) {
      const Copies copies(format, shape.rows, shape.cols, all, working_set());
      Rows rows(kernels(), 1, shape.cols, shape.rows);
      fmt::print("{:14} {:>6} x {:>5} {:7.2f}", format.name, shape.rows, shape.cols,
                 double(copies.bytes) / 1e6);
      for (ThreadPool* pool : {&one, &all}) {
        std::vector<double> reads, rates, shares;
        for (int i = 0; i < kRepeats; ++i) {
          reads.push_back(plain_read(*pool, copies.matrices[0].data,
                                     copies.bytes * copies.matrices.size() / 2));
          rates.push_back(double(copies.bytes) / seconds_per_matrix(*pool, copies, rows) / 1e9);
          shares.push_back(100 * rates.back() / reads.back());
        }
        fmt::print("     {:13.1f} {:5.1f} {:4.0f}", median(reads), median(rates), median(shares));
      }
      fmt::print("\n");
      std::fflush(stdout);
    }
  }
}

void batch(const std::vector<WeightFormat>& formats, ThreadPool& pool) {
  constexpr int kCounts[] = {1, 2, 3, 4, 6, 8, 12, 16};
  fmt::print("time relative to M = 1, {} threads, 4096 x 4096\n{:14} {:>8}", pool.threads(),
             "format", "us");
  for (int m : kCounts) fmt::print(" M={:<4}", m);
  fmt::print("\n");
  for (const WeightFormat& format : formats) {
    const Copies copies(format, 4096, 4096, pool, working_set());
    std::vector<double> times;
    for (int m : kCounts) {
      Rows rows(kernels(), m, 4096, 4096);
      std::vector<double> repeats;
      for (int i = 0; i < 3; ++i) repeats.push_back(seconds_per_matrix(pool, copies, rows));
      times.push_back(median(repeats));
    }
    fmt::print("{:14} {:8.1f}", format.name, times[0] * 1e6);
    for (double time : times) fmt::print(" {:6.2f}", time / times[0]);
    fmt::print("\n");
    std::fflush(stdout);
  }
}

void gemm(const std::vector<WeightFormat>& formats, ThreadPool& all) {
  ThreadPool one(1);
  constexpr int kRows = 512;
  fmt::print("{:14} {:>13}   1 thread   {} threads (GOP/s, M = {}, quantizing included)\n",
             "format", "rows x cols", all.threads(), kRows);
  for (const WeightFormat& format : formats) {
    for (const Shape shape : {Shape{4096, 4096}, {1536, 768}, {768, 2048}}) {
      const Copies copies(format, shape.rows, shape.cols, all, size_t(64) << 20);
      Rows rows(kernels(), kRows, shape.cols, shape.rows);
      fmt::print("{:14} {:>5} x {:>5}", format.name, shape.rows, shape.cols);
      for (ThreadPool* pool : {&one, &all}) {
        std::vector<double> rates;
        for (int i = 0; i < 3; ++i)
          rates.push_back(2.0 * kRows * shape.rows * shape.cols /
                          seconds_per_matrix(*pool, copies, rows) / 1e9);
        fmt::print(" {:10.1f}", median(rates));
      }
      fmt::print("\n");
      std::fflush(stdout);
    }
  }
}

void packing(const std::vector<WeightFormat>& formats, ThreadPool& all) {
  ThreadPool one(1);
  fmt::print("{:14}   1 thread   {} threads (GB/s of stored bytes)\n", "format", all.threads());
  for (const WeightFormat& format : formats) {
    const RawWeight weight = random_weight(format, 8192, 4096, 1);
    fmt::print("{:14}", format.name);
    for (ThreadPool* pool : {&one, &all}) {
      Arena arena;
      const double time = time_of(
          [&] {
            arena.reset();
            pack(weight, arena, *pool);
          },
          kRepeats);
      fmt::print(" {:10.2f}", double(weight.data.bytes.size()) / time / 1e9);
    }
    fmt::print("\n");
  }
}

void elementwise_rows() {
  constexpr int kCols = 4096, kCalls = 50;
  const KernelTable& t = kernels();
  std::vector<float> a(kCols, 0.7f), b(kCols, -1.3f), out(kCols);
  std::vector<QuantizedBlock> blocks(quantized_blocks(t, 1, kCols));
  const std::pair<const char*, std::function<void()>> cases[] = {
      {"rms_norm", [&] { rms_norm(t, a.data(), b.data(), 1e-6f, false, kCols, out.data()); }},
      {"silu_mul", [&] { silu_mul(t, a.data(), b.data(), kCols, out.data()); }},
      {"gelu_tanh_mul", [&] { gelu_tanh_mul(t, a.data(), b.data(), kCols, out.data()); }},
      {"gelu_erf_mul", [&] { gelu_erf_mul(a.data(), b.data(), kCols, out.data()); }},
      {"softcap", [&] { softcap(t, a.data(), 30, kCols, out.data()); }},
      {"add", [&] { add(t, a.data(), b.data(), kCols, out.data()); }},
      {"arg_max", [&] { out[0] = float(arg_max(t, a.data(), kCols).index); }},
      {"rope", [&] { rope(t, out.data(), a.data(), b.data(), kCols / 128, 128, 128); }},
      {"quantize", [&] { quantize_row(t, a.data(), kCols, 0, 1, blocks.data()); }}};
  fmt::print("{} values, {}\n", kCols, t.name);
  for (const auto& [name, body] : cases) {
    const double time = time_of(
        [&body = body] {
          for (int i = 0; i < kCalls; ++i) body();
        },
        200);
    fmt::print("{:14} {:8.0f} ns\n", name, time / kCalls * 1e9);
  }
}

void fork(ThreadPool& pool) {
  constexpr int kRegions = 1000;
  for (int chunks : {pool.threads(), 16, 64}) {
    const double time = time_of(
        [&] {
          for (int i = 0; i < kRegions; ++i) pool.run(chunks, [](int, int) {});
        },
        50);
    fmt::print("{} threads, {:3} empty chunks: {:6.0f} ns\n", pool.threads(), chunks,
               time / kRegions * 1e9);
  }
}

int run(const std::string& what, std::vector<WeightFormat> formats) {
  if (formats.empty())
    for (const char* name : {"Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K",
                             "affine4g64BF16", "affine8g64BF16", "F32", "F16", "BF16"})
      formats.push_back(format_named(name));
  ThreadPool pool(default_thread_count());
  if (what == "gemv")
    gemv(formats, pool);
  else if (what == "batch")
    batch(formats, pool);
  else if (what == "gemm")
    gemm(formats, pool);
  else if (what == "pack")
    packing(formats, pool);
  else if (what == "rows")
    elementwise_rows();
  else if (what == "fork")
    fork(pool);
  else
    return fmt::print(stderr, "usage: kernels gemv|batch|gemm|pack|rows|fork [format…]\n"), 2;
  return 0;
}

}  // namespace
}  // namespace mantou::cpu

int main(int argc, char** argv) {
  std::vector<mantou::cpu::WeightFormat> formats;
  for (int i = 2; i < argc; ++i) formats.push_back(mantou::cpu::format_named(argv[i]));
  return mantou::cpu::run(argc > 1 ? argv[1] : "", std::move(formats));
}
