#include "backends/cpu/kernels/attention.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "backends/cpu/kernels/attention_kernels.h"
#include "backends/cpu/kernels/hadamard.h"
#include "backends/cpu/kv_quantize.h"
#include "base/error.h"
#include "base/thread_pool.h"

namespace mantou::cpu {
namespace {

// Elements appended below which waking other threads costs more than it gains.
constexpr int64_t kSmallAppend = 1 << 14;
// Rows × keys × dimensions below which a call of attend() stays on one thread.
constexpr int64_t kSmallAttend = 1 << 17;
// A tile costs as much as one of so many rows at least: below that it waits for memory.
constexpr int kMemoryBoundRows = 8;
// Tiles that are more than 1 / kTilesPerThread of a thread's share are split, into pieces of half
// that size.
constexpr int kTilesPerThread = 8;

int ceil_div(int a, int b) { return (a + b - 1) / b; }
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

size_t part_floats(int rows, int lanes) {
  return (size_t(rows) * (lanes + 2) + kLanes - 1) / kLanes * kLanes;
}

Part part_at(float* memory, int rows, int lanes) {
  float* top = memory + size_t(rows) * lanes;
  return {memory, top, top + rows};
}

struct CacheLineDeleter {
  void operator()(float* p) const { ::operator delete[](p, std::align_val_t(64)); }
};
using AlignedFloats = std::unique_ptr<float[], CacheLineDeleter>;

AlignedFloats aligned_floats(size_t n) {
  return AlignedFloats(
      static_cast<float*>(::operator new[](n * sizeof(float), std::align_val_t(64))));
}

// A tile and how it is computed: streamed by one unit of work, or its splits spread over several.
struct PlannedTile {
  QueryTile tile;
  int64_t first_split = 0;
  int64_t last_split = 0;
  int64_t cost = 0;
  bool streamed = true;
  size_t parts = 0;  // offset into the workspace: the running total, then the parts of a wave

  int rows() const { return tile.queries * tile.heads; }
};

struct Unit {
  int tile = 0;
  int64_t first_split = 0;
  int64_t last_split = 0;
};

}  // namespace

struct AttentionWorkspace::Memory {
  size_t parts_budget = 0;
  std::vector<PlannedTile> tiles;
  std::vector<Unit> units;
  std::unique_ptr<std::atomic<int64_t>[]> pending;  // per tile: splits of the wave not yet done
  size_t pending_capacity = 0;
  AlignedFloats parts;
  size_t parts_capacity = 0;
  std::vector<TileScratch> scratch;  // per thread
  std::vector<float> rotated;        // the step's queries
};

AttentionWorkspace::AttentionWorkspace(size_t parts_budget) : memory_(std::make_unique<Memory>()) {
  memory_->parts_budget = parts_budget;
}
AttentionWorkspace::~AttentionWorkspace() = default;

const AttentionKernels& attention_kernels(mantou::Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case mantou::Isa::kAvx512:
      return kAttentionAvx512;
    case mantou::Isa::kAvx2:
      return kAttentionAvx2;
#endif
    default:
      return kAttentionScalar;
  }
}

// One call of attend(). Tiles too large for an even distribution are split; how tiles are
// distributed never changes a bit, since parts are always merged in the order of their keys. When
// the parts of all split tiles would exceed the workspace's budget they are computed in waves.
class AttentionRun {
 public:
  AttentionRun(ThreadPool& pool, AttentionWorkspace& workspace, const KvRows& state,
               const AttentionParams& params, mantou::Isa isa)
      : pool_(pool),
        memory_(*workspace.memory_),
        state_(state),
        params_(params),
        kernels_(attention_kernels(isa)),
        call_{params.scale, params.softcap, params.window},
        lanes_(state.layout().value_stride) {}

  void run(const StepLayout& layout, const float* q, float* out) {
    plan(layout, rotated(layout, q), out);
    plan_splits();
    for (int64_t wave = 0; wave < waves_; wave++) {
      plan_wave(wave);
      const int units = int(memory_.units.size());
      const auto unit = [this](int index, int thread) {
        compute(memory_.units[index], memory_.scratch[thread]);
      };
      if (total_cost_ * state_.layout().head_dim < kSmallAttend) {
        for (int i = 0; i < units; i++) unit(i, 0);
      } else {
        pool_.run(units, unit);
      }
    }
    rotate_back(layout, out);
  }

 private:
  const float* rotated(const StepLayout& layout, const float* q);
  void rotate_back(const StepLayout& layout, float* out);
  void rotate_tokens(const StepRow& row, float* heads);
  void plan(const StepLayout& layout, const float* q, float* out);
  void plan_row(const StepRow& row, const float* q, float* out);
  void plan_splits();
  void plan_wave(int64_t wave);
  void compute(const Unit& unit, TileScratch& scratch);
  void stream(const PlannedTile& planned, TileScratch& scratch);
  void merge_wave(const PlannedTile& planned, int64_t first_split, int64_t last_split);

  ThreadPool& pool_;
  AttentionWorkspace::Memory& memory_;
  const KvRows& state_;
  const AttentionParams& params_;
  const AttentionKernels& kernels_;
  const AttentionCall call_;
  const int lanes_;
  int64_t total_cost_ = 0;
  int64_t splits_per_wave_ = 0;
  int64_t waves_ = 1;
};

// Rotates the heads of a row's tokens. heads: of the whole batch.
void AttentionRun::rotate_tokens(const StepRow& row, float* heads) {
  const int head_dim = state_.layout().head_dim;
  const auto token = [&](int i, int) {
    float* const first = heads + size_t(row.first + i) * params_.heads * head_dim;
    for (int head = 0; head < params_.heads; head++) rotate_head(first + head * head_dim, head_dim);
  };
  if (int64_t{row.count} * params_.heads * head_dim < kSmallAppend) {
    for (int i = 0; i < row.count; i++) token(i, 0);
  } else {
    pool_.run(row.count, token);
  }
}

// The queries as rotated keys want them: a copy if there is such a row.
const float* AttentionRun::rotated(const StepLayout& layout, const float* q) {
  const size_t width = size_t(params_.heads) * state_.layout().head_dim;
  bool copied = false;
  for (const StepRow& row : layout.rows) {
    if (!state_.view(row.state_row).layout->rotated) continue;
    if (!copied) memory_.rotated.assign(q, q + layout.total_tokens * width);
    copied = true;
    rotate_tokens(row, memory_.rotated.data());
  }
  return copied ? memory_.rotated.data() : q;
}

void AttentionRun::rotate_back(const StepLayout& layout, float* out) {
  for (const StepRow& row : layout.rows)
    if (state_.view(row.state_row).layout->rotated) rotate_tokens(row, out);
}

void AttentionRun::plan(const StepLayout& layout, const float* q, float* out) {
  memory_.tiles.clear();
  total_cost_ = 0;
  if (int(memory_.scratch.size()) < pool_.threads()) memory_.scratch.resize(pool_.threads());
  const size_t stride = size_t(params_.heads) * state_.layout().head_dim;
  for (const StepRow& row : layout.rows) {
    plan_row(row, q + row.first * stride, out + row.first * stride);
  }
}

// q, out: of the row's first token.
void AttentionRun::plan_row(const StepRow& row, const float* q, float* out) {
  if (row.count == 0) return;
  const KvView view = state_.view(row.state_row);
  const int64_t oldest =
      params_.window > 0 ? std::max<int64_t>(0, row.position + 1 - params_.window) : 0;
  if (row.position < 0 || row.position + row.count > view.tokens ||
      oldest < view.first_block * kBlockTokens) {
    fail(ErrorCode::kInternal,
         "attention: queries {} to {} of row {} need keys that its state does not hold",
         row.position, row.position + row.count - 1, row.state_row);
  }
  const int head_dim = state_.layout().head_dim;
  const int group = params_.heads / state_.layout().kv_heads;
  const int group_parts = ceil_div(group, kQueryTileRows);
  const int heads = ceil_div(group, group_parts);
  const int queries = kQueryTileRows / heads;
  for (int head = 0; head < params_.heads;) {
    const int tile_heads = std::min(heads, (head / group + 1) * group - head);
    // The last queries see most keys: first, so that the small ones fill the end.
    for (int i = (row.count - 1) / queries * queries; i >= 0; i -= queries) {
      PlannedTile planned;
      QueryTile& tile = planned.tile;
      tile.layout = view.layout;
      tile.stride = size_t(params_.heads) * head_dim;
      tile.q = q + i * tile.stride + size_t(head) * head_dim;
      tile.out = out + i * tile.stride + size_t(head) * head_dim;
      tile.sinks = params_.sinks.empty() ? nullptr : params_.sinks.data() + head;
      tile.queries = std::min(queries, row.count - i);
      tile.heads = tile_heads;
      tile.kv_head = head / group;
      tile.position = row.position + i;
      tile.blocks = view.blocks.data();
      tile.first_block = view.first_block;
      tile.block_count = int64_t(view.blocks.size());
      const int64_t end = tile.position + tile.queries;
      const int64_t first =
          params_.window > 0 ? std::max<int64_t>(0, tile.position + 1 - params_.window) : 0;
      planned.first_split = first / kSplitTokens;
      planned.last_split = ceil_div(end, int64_t{kSplitTokens});
      planned.cost = (end - first) * std::max(planned.rows(), kMemoryBoundRows);
      total_cost_ += planned.cost;
      memory_.tiles.push_back(planned);
    }
    head += tile_heads;
  }
}

void AttentionRun::plan_splits() {
  const int64_t share = total_cost_ / (int64_t{kTilesPerThread} * pool_.threads());
  size_t per_split = 0, most_splits = 0;
  for (PlannedTile& planned : memory_.tiles) {
    const size_t splits = planned.last_split - planned.first_split;
    planned.streamed = pool_.threads() == 1 || splits == 1 || planned.cost <= share;
    if (planned.streamed) continue;
    per_split += part_floats(planned.rows(), lanes_);
    most_splits = std::max(most_splits, splits);
  }
  if (per_split == 0) return;
  splits_per_wave_ =
      std::clamp<size_t>(memory_.parts_budget / sizeof(float) / per_split, 1, most_splits);
  waves_ = ceil_div(int64_t(most_splits), splits_per_wave_);
  size_t floats = 0;
  for (PlannedTile& planned : memory_.tiles) {
    if (planned.streamed) continue;
    planned.parts = floats;
    floats += part_floats(planned.rows(), lanes_) * (1 + splits_per_wave_);
  }
  if (floats > memory_.parts_capacity) {
    memory_.parts.reset();
    memory_.parts_capacity = 0;
    memory_.parts = aligned_floats(floats);
    memory_.parts_capacity = floats;
  }
  if (memory_.tiles.size() > memory_.pending_capacity) {
    memory_.pending = std::make_unique<std::atomic<int64_t>[]>(memory_.tiles.size());
    memory_.pending_capacity = memory_.tiles.size();
  }
}

void AttentionRun::plan_wave(int64_t wave) {
  memory_.units.clear();
  const int64_t piece_cost =
      std::max<int64_t>(1, total_cost_ / (2 * int64_t{kTilesPerThread} * pool_.threads()));
  for (int i = 0; i < int(memory_.tiles.size()); i++) {
    const PlannedTile& planned = memory_.tiles[i];
    if (planned.streamed) {
      if (wave == 0) memory_.units.push_back({i, planned.first_split, planned.last_split});
      continue;
    }
    const int64_t first = planned.first_split + wave * splits_per_wave_;
    const int64_t last = std::min(first + splits_per_wave_, planned.last_split);
    if (first >= last) continue;
    memory_.pending[i].store(last - first, std::memory_order_relaxed);
    // Consecutive splits in one piece: what one prefetches is what the next reads.
    const int64_t splits = planned.last_split - planned.first_split;
    const int64_t piece = std::max<int64_t>(1, splits * piece_cost / planned.cost);
    for (int64_t split = first; split < last; split += piece) {
      memory_.units.push_back({i, split, std::min(split + piece, last)});
    }
  }
}

void AttentionRun::compute(const Unit& unit, TileScratch& scratch) {
  const PlannedTile& planned = memory_.tiles[unit.tile];
  kernels_.load_queries(call_, planned.tile, scratch);
  if (planned.streamed) return stream(planned, scratch);
  const size_t floats = part_floats(planned.rows(), lanes_);
  const int64_t wave_first =
      unit.first_split - (unit.first_split - planned.first_split) % splits_per_wave_;
  for (int64_t split = unit.first_split; split < unit.last_split; split++) {
    float* memory = memory_.parts.get() + planned.parts + (1 + split - wave_first) * floats;
    kernels_.attend_split(call_, planned.tile, split, scratch,
                          part_at(memory, planned.rows(), lanes_));
  }
  const int64_t done = unit.last_split - unit.first_split;
  if (memory_.pending[unit.tile].fetch_sub(done, std::memory_order_acq_rel) != done) return;
  merge_wave(planned, wave_first, std::min(wave_first + splits_per_wave_, planned.last_split));
}

void AttentionRun::stream(const PlannedTile& planned, TileScratch& scratch) {
  const int rows = planned.rows();
  const Part total = part_at(scratch.total, rows, lanes_);
  const Part part = part_at(scratch.part, rows, lanes_);
  kernels_.clear(rows, lanes_, total);
  for (int64_t split = planned.first_split; split < planned.last_split; split++) {
    kernels_.attend_split(call_, planned.tile, split, scratch, part);
    kernels_.merge(rows, lanes_, total, part);
  }
  kernels_.finish(call_, planned.tile, total);
}

// By the thread that finished the last part of the wave.
void AttentionRun::merge_wave(const PlannedTile& planned, int64_t first_split, int64_t last_split) {
  const int rows = planned.rows();
  const size_t floats = part_floats(rows, lanes_);
  float* memory = memory_.parts.get() + planned.parts;
  const Part total = part_at(memory, rows, lanes_);
  if (first_split == planned.first_split) kernels_.clear(rows, lanes_, total);
  for (int64_t i = 1; i <= last_split - first_split; i++) {
    kernels_.merge(rows, lanes_, total, part_at(memory + i * floats, rows, lanes_));
  }
  if (last_split == planned.last_split) kernels_.finish(call_, planned.tile, total);
}

void attend(ThreadPool& pool, AttentionWorkspace& workspace, const KvRows& state,
            const AttentionParams& params, const StepLayout& layout, std::span<const float> q,
            std::span<float> out, mantou::Isa isa) {
  const size_t size = size_t(layout.total_tokens) * params.heads * state.layout().head_dim;
  const int64_t window = state.spec().window;
  if (params.heads < 1 || params.heads % state.layout().kv_heads != 0 || q.size() != size ||
      out.size() != size || (!params.sinks.empty() && int(params.sinks.size()) != params.heads) ||
      (window > 0 && (params.window < 1 || params.window > window))) {
    fail(ErrorCode::kInternal,
         "attention: {} heads, {} sinks, window {}, {} and {} floats do not fit {} tokens of {}",
         params.heads, params.sinks.size(), params.window, q.size(), out.size(),
         layout.total_tokens, state.spec().signature());
  }
  AttentionRun(pool, workspace, state, params, isa).run(layout, q.data(), out.data());
}

namespace {

// The step's tokens [first, last) of the flat batch, one head.
void append_strip(const AttentionKernels& kernels, const KvRows& state, const StepLayout& layout,
                  int head, int first, int last, const float* k, const float* v) {
  const size_t stride = size_t(state.layout().kv_heads) * state.layout().head_dim;
  for (const StepRow& row : layout.rows) {
    const KvView view = state.view(row.state_row);
    const KvBlockLayout& block = *view.layout;
    const int end = std::min(last, row.first + row.count);
    for (int token = std::max(first, row.first), count = 0; token < end; token += count) {
      const int64_t position = row.position + token - row.first;
      const int slot = int(position % kBlockTokens);
      count = std::min(end - token, kBlockTokens - slot);
      std::byte* section =
          view.blocks[position / kBlockTokens - view.first_block] + head * block.head_bytes;
      const size_t from = token * stride + size_t(head) * block.head_dim;
      if (block.bits > 0)
        quantize_tokens(block, section, slot, count, k + from, v + from, stride);
      else
        kernels.append(block, section, slot, count, k + from, v + from, stride);
    }
  }
}

}  // namespace

void append_kv(ThreadPool& pool, KvRows& state, const StepLayout& layout, std::span<const float> k,
               std::span<const float> v, mantou::Isa isa) {
  const KvBlockLayout& block = state.layout();
  const int64_t size = int64_t{layout.total_tokens} * block.kv_heads * block.head_dim;
  if (int64_t(k.size()) != size || int64_t(v.size()) != size) {
    fail(ErrorCode::kInternal, "attention: {} keys and {} values do not fit {} tokens of {}",
         k.size(), v.size(), layout.total_tokens, state.spec().signature());
  }
  state.mark_appended(layout);
  const AttentionKernels& kernels = attention_kernels(isa);
  const int strips = ceil_div(layout.total_tokens, kBlockTokens);
  const auto strip = [&](int chunk, int) {
    const int first = chunk / block.kv_heads * kBlockTokens;
    append_strip(kernels, state, layout, chunk % block.kv_heads, first, first + kBlockTokens,
                 k.data(), v.data());
  };
  const int chunks = strips * block.kv_heads;
  if (size < kSmallAppend) {
    for (int chunk = 0; chunk < chunks; chunk++) strip(chunk, 0);
  } else {
    pool.run(chunks, strip);
  }
}

}  // namespace mantou::cpu
