// The attention kernels of one instruction set as function pointers, and the plain data they work
// on. Internal to attention.cc, its instruction-set units and their tests. The units see nothing
// but plain structs here, so that no inline function compiled for one set can be linked into
// another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/kv_block.h"
#include "base/cpu_features.h"

namespace mantou::cpu {

constexpr int kQueryTileRows = 48;  // rows (queries × heads) of a tile at most
constexpr int kSplitBlocks = 8;     // blocks whose partial result is computed on its own
constexpr int kSplitTokens = kSplitBlocks * kBlockTokens;
constexpr int kQueryStride = 528;  // floats; not a multiple of 4 KiB
constexpr int kLanes = 16;         // floats of the vectors that define the order of sums

struct AttentionCall {
  float scale = 1;
  float softcap = 0;
  int64_t window = 0;
};

// Some queries of one row times some heads of one group: row r is query r / heads, head r % heads.
struct QueryTile {
  const KvBlockLayout* layout = nullptr;  // of the row's blocks
  const float* q = nullptr;               // first query, first head
  float* out = nullptr;                   // as q
  size_t stride = 0;                      // floats between queries
  const float* sinks = nullptr;           // of the first head; or null
  int queries = 0;
  int heads = 0;
  int kv_head = 0;
  int64_t position = 0;                // of the first query
  std::byte* const* blocks = nullptr;  // blocks[i] holds tokens 64 (first_block + i) …
  int64_t first_block = 0;
  int64_t block_count = 0;
};

// Unnormalised result of some keys: `top` the largest logit, `sum` of exp(logit − top), `values`
// [rows][lanes] the values weighted by exp(logit − top). One memory area of part_floats() floats.
struct Part {
  float* values = nullptr;
  float* top = nullptr;
  float* sum = nullptr;
};

// Per thread.
struct TileScratch {
  alignas(64) float queries[kQueryTileRows][kQueryStride];  // scaled
  alignas(64) float weights[kQueryTileRows][kBlockTokens];  // logits, then exponentials
  alignas(64) float lane_sums[kQueryTileRows][kLanes];
  alignas(64) float slab[64 * 64];  // keys or values converted to f32
  // Of quantized blocks: products with codes, then weights times scales; sums of the queries.
  alignas(64) float scaled[kQueryTileRows][kBlockTokens];
  alignas(64) float query_sums[kQueryTileRows][kMaxHeadDim / 32];
  alignas(64) float tile_top[kQueryTileRows];
  alignas(64) float part[kQueryTileRows * (kMaxHeadDim + 2)];
  alignas(64) float total[kQueryTileRows * (kMaxHeadDim + 2)];
};

struct AttentionKernels {
  void (*load_queries)(const AttentionCall& call, const QueryTile& tile, TileScratch& scratch);
  // Part of split `split` (keys 512 split …). Queries must be loaded.
  void (*attend_split)(const AttentionCall& call, const QueryTile& tile, int64_t split,
                       TileScratch& scratch, const Part& part);
  void (*clear)(int rows, int lanes, const Part& total);
  // total += part; a part in which a row sees no key leaves that row as it was.
  void (*merge)(int rows, int lanes, const Part& total, const Part& part);
  // Adds the sinks, normalises, writes tile.out.
  void (*finish)(const AttentionCall& call, const QueryTile& tile, const Part& total);
  // Tokens slot … slot + count − 1 of one head's section; k, v: [count][stride] from their first.
  // Of plain blocks.
  void (*append)(const KvBlockLayout& layout, std::byte* section, int slot, int count,
                 const float* k, const float* v, size_t stride);
  // 16 values, for tests of the two functions themselves: exp for x ≤ 0, tanh.
  void (*exp16)(const float* x, float* y);
  void (*tanh16)(const float* x, float* y);
};

extern const AttentionKernels kAttentionScalar;
#if defined(__x86_64__)
extern const AttentionKernels kAttentionAvx2;
extern const AttentionKernels kAttentionAvx512;
#endif

// The kernels of an instruction set this machine has (base/cpu_features.h).
const AttentionKernels& attention_kernels(mantou::Isa isa);

}  // namespace mantou::cpu
