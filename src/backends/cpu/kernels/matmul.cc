#include "backends/cpu/kernels/matmul.h"

#include <algorithm>

#include "backends/cpu/kernels/family_spec.h"
#include "base/error.h"

namespace mantou::cpu {
namespace {

// Bytes of quantized activations that are multiplied with all tiles of a chunk before the next:
// they stay in the L2 cache meanwhile.
constexpr size_t kResidentBytes = size_t(512) << 10;
// Rows of f32 activations that pass at once: a span of 256 columns of them takes as many bytes.
constexpr int kResidentRows = int(kResidentBytes / (kDenseSpan * sizeof(float)));
// A chunk has at least so many bytes of weights (a sequential stream worth its start), and at least
// so many multiplications (worth claiming it), if a thread then still gets several chunks.
constexpr size_t kChunkBytes = size_t(48) << 10;
constexpr int kChunksPerThread = 6;
constexpr size_t kMaxJobs = 16;

int panel_kind(int size) {
  int kind = 0;
  while (kPanelSizes[kind] != size) ++kind;
  return kind;
}

void integer_tiles(const KernelTable& table, const MatmulJob& job, const MatmulInput& input,
                   int first, int last) {
  const PackedMatrix& w = *job.matrix;
  const auto& kernels = table.quantized_tile[size_t(w.family)];
  const int full = table.quantized_panel, blocks = w.blocks();
  const size_t groups = (size_t(input.cols) + 255) / 256 * 8;  // as quantize_row pads them
  const size_t tile_bytes = w.tile_bytes();
  const size_t panel_bytes = groups * size_t(full) * sizeof(QuantizedBlock);
  const int resident = int(std::max<size_t>(1, kResidentBytes / panel_bytes)) * full;
  for (int m0 = 0; m0 < input.rows; m0 += resident) {
    const int m1 = std::min(input.rows, m0 + resident);
    for (int t = first; t < last; ++t) {
      const std::byte* tile = w.data + size_t(t) * tile_bytes;
      const int n0 = t * kTileRows, valid_cols = std::min(kTileRows, w.rows - n0);
      for (int m = m0; m < m1; m += full) {
        const int left = input.rows - m;
        kernels[panel_kind(panel_rows(left, full))](
            tile, blocks, w.group_shift, input.quantized + size_t(m) * groups,
            job.y + size_t(m) * job.ldy + n0, job.ldy, std::min(left, full), valid_cols);
      }
    }
  }
}

void dense_tiles(const KernelTable& table, const MatmulJob& job, const MatmulInput& input,
                 int first, int last) {
  const PackedMatrix& w = *job.matrix;
  const auto kernel = table.dense_tiles[size_t(w.family) - kIntegerFamilies];
  const int n0 = first * kDenseTileRows, n1 = std::min(w.rows, last * kDenseTileRows);
  const int resident = kResidentRows / table.dense_panel * table.dense_panel;
  for (int m = 0; m < input.rows; m += resident)
    kernel(w.data + size_t(first) * w.tile_bytes(), last - first, w.cols,
           input.panels + size_t(m) * size_t(w.cols), std::min(resident, input.rows - m),
           job.y + size_t(m) * job.ldy + n0, job.ldy, n1 - n0);
}

void check(const MatmulJob& job, const MatmulInput& input) {
  const PackedMatrix& w = *job.matrix;
  if (w.cols != input.cols)
    fail(ErrorCode::kInternal, "matmul: a {} x {} matrix on {} columns", w.rows, w.cols,
         input.cols);
  if (is_dense(w.family) ? input.panels == nullptr : input.quantized == nullptr)
    fail(ErrorCode::kInternal, "matmul: the input form of {} is missing", w.layout_id());
}

// How one job is cut.
struct Cut {
  int tiles_per_chunk;
  int chunks;
};

Cut cut(const PackedMatrix& w, int threads) {
  const int tiles = w.tiles();
  const int least = int((kChunkBytes + w.tile_bytes() - 1) / w.tile_bytes());
  const int even = (tiles + threads * kChunksPerThread - 1) / (threads * kChunksPerThread);
  const int per_chunk = std::max(1, std::max(least, even));
  return {per_chunk, (tiles + per_chunk - 1) / per_chunk};
}

}  // namespace

void matmul_tiles(const KernelTable& table, const MatmulJob& job, const MatmulInput& input,
                  int first, int last) {
  check(job, input);
  if (is_dense(job.matrix->family))
    dense_tiles(table, job, input, first, last);
  else
    integer_tiles(table, job, input, first, last);
}

void matmul(const KernelTable& table, ThreadPool& pool, std::span<const MatmulJob> jobs,
            const MatmulInput& input) {
  if (jobs.size() > kMaxJobs)
    fail(ErrorCode::kInternal, "matmul: {} matrices at once, at most {}", jobs.size(), kMaxJobs);
  if (input.rows == 0) return;
  Cut cuts[kMaxJobs];
  int chunks = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    check(jobs[i], input);
    cuts[i] = cut(*jobs[i].matrix, pool.threads());
    chunks += cuts[i].chunks;
  }
  pool.run(chunks, [&](int chunk, int) {
    size_t i = 0;
    for (; chunk >= cuts[i].chunks; ++i) chunk -= cuts[i].chunks;
    const int first = chunk * cuts[i].tiles_per_chunk;
    matmul_tiles(table, jobs[i], input, first,
                 std::min(jobs[i].matrix->tiles(), first + cuts[i].tiles_per_chunk));
  });
}

}  // namespace mantou::cpu
