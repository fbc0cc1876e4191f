// KvRows as bytes and back.
#include <algorithm>
#include <cstring>

#include "backends/cpu/kv_rows.h"
#include "base/error.h"

namespace mantou::cpu {
namespace {

constexpr std::string_view kLayout = "cpu-blocks-1";

// Lane `lane` of a row of lanes of so many bits; lanes of 4 bits as kv_block.h pairs them.
void clear_lane(std::byte* row, int lane, int bits) {
  if (bits == 4)
    row[lane / 32 * 16 + lane % 16] &= lane % 32 < 16 ? std::byte{0xf0} : std::byte{0x0f};
  else
    std::memset(row + size_t(lane) * bits / 8, 0, size_t(bits) / 8);
}

// Zeros in the cells of tokens `used` … of a block, and in what pads values.
void clear_unused(const KvBlockLayout& layout, std::byte* block, int64_t used) {
  const int bits = layout.bits > 0 ? layout.bits : layout.type == KvType::kF32 ? 32 : 16;
  const size_t key_row = size_t(32) * bits / 8, value_row = size_t(layout.value_stride) * bits / 8;
  for (int head = 0; head < layout.kv_heads; head++) {
    std::byte* const keys = block + head * layout.head_bytes;
    std::byte* const values = keys + layout.value_offset;
    for (int slot = 0; slot < kBlockTokens; slot++) {
      for (int d = slot < used ? layout.head_dim : 0; d < layout.value_stride; d++)
        clear_lane(values + slot * value_row, d, bits);
      if (slot < used) continue;
      for (int d = 0; d < layout.head_dim; d++)
        clear_lane(keys + (size_t(slot / 32) * layout.head_dim + d) * key_row, slot % 32, bits);
      for (int plane = 0; plane < 4 * layout.groups; plane++)
        std::memset(keys + layout.scale_offset + (size_t(plane) * kBlockTokens + slot) * 2, 0, 2);
    }
  }
}

}  // namespace

Snapshot KvRows::snapshot(int number) const {
  require_idle("snapshot");
  const Row& row = at(number);
  const KvBlockLayout& layout = layout_of(row);
  Snapshot saved{std::string(kLayout),
                 spec_.signature(),
                 {{"tokens", row.tokens},
                  {"first_block", row.first_block},
                  {"quantized", row.quantized},
                  {"minimum", row.minimum}},
                 {}};
  for (size_t i = 0; i < row.blocks.size(); i++) {
    const int64_t index = row.first_block + int64_t(i);
    const int64_t used = std::min<int64_t>(row.tokens - index * kBlockTokens, kBlockTokens);
    KvBlockPtr block = row.blocks[i];
    if (used < kBlockTokens || layout.value_stride != layout.head_dim) {
      block = pool_->allocate(layout.block_bytes);
      std::memcpy(block->data(), row.addresses[i], layout.block_bytes);
      clear_unused(layout, block->data(), used);
    }
    const std::span<const std::byte> bytes(block->data(), layout.block_bytes);
    saved.ranges.push_back({fmt::format("block {}", index), bytes, std::move(block)});
  }
  return saved;
}

void KvRows::restore(int number, const Snapshot& saved) {
  require_idle("restore");
  at(number);
  const SnapshotReader reader(saved, kLayout, spec_.signature());
  Row row;
  row.tokens = reader.number("tokens", 0, int64_t{1} << 40);
  const KvQuant& quant = spec_.quant;
  const bool must = quant.bits > 0 && (quant.start == 0 || row.tokens > quant.start);
  const bool may = quant.bits > 0 && row.tokens >= quant.start;
  row.quantized = reader.number("quantized", must, may) == 1;
  row.minimum = reader.number("minimum", 0, row.quantized ? row.tokens : 0);
  row.first_block = reader.number("first_block", 0, first_needed_block(row.tokens));
  const size_t bytes = layout_of(row).block_bytes;
  const int64_t blocks = (row.tokens + kBlockTokens - 1) / kBlockTokens - row.first_block;
  if (blocks != int64_t(saved.ranges.size()))
    reader.refuse(fmt::format("it has {} blocks, not {}", saved.ranges.size(), blocks));
  reader.require_ranges(std::vector<size_t>(saved.ranges.size(), bytes));
  for (const SnapshotRange& range : saved.ranges) {
    row.blocks.push_back(pool_->allocate(bytes));
    row.addresses.push_back(row.blocks.back()->data());
    std::memcpy(row.addresses.back(), range.bytes.data(), bytes);
  }
  rows_[number] = std::move(row);
}

}  // namespace mantou::cpu
