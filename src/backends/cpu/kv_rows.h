// Keys and values of one layer for all rows: the cpu backend's LayerState.
//
// A row is a list of shared blocks of 64 tokens (kv_block.h). Blocks are immutable once full or
// shared; a step that appends to a shared tail block copies it first. So fork, join and keep move
// pointers, and trim cuts the list. A sliding layer drops, at commit, the blocks that no later
// query can see. Tokens of a step are written by append_kv (kernels/attention.h) straight into free
// cells and count only after commit_step. Rows of a quantized layer have quantized blocks from
// their first token, or from the step on that begins with quant.start tokens or more: it replaces
// all of the row's blocks, one layer at a time. A round keeps what its end may need again: blocks
// behind a window, the plain blocks of a row that was quantized in it. Owned by the Executor;
// engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backends/cpu/kv_block.h"
#include "backends/cpu/kv_block_pool.h"
#include "tensor/layer_state.h"

namespace mantou::cpu {

// What attention may read of a row; valid until the state changes.
struct KvView {
  std::span<std::byte* const> blocks;  // blocks[i] holds tokens 64 (first_block + i) …
  int64_t first_block = 0;
  int64_t tokens = 0;  // committed, plus those this step has appended
  const KvBlockLayout* layout = nullptr;
};

class KvRows : public LayerState {
 public:
  // No rows. All layers of a model share one pool.
  KvRows(const StateSpec& spec, std::shared_ptr<KvBlockPool> pool);

  const StateSpec& spec() const override { return spec_; }
  int rows() const override { return int(rows_.size()); }
  int64_t tokens(int row) const override;
  size_t bytes(int row) const override;
  // The most that a row holds between steps on its way to so many tokens; during a step of n tokens
  // a sliding row holds up to n / 64 + 1 blocks more.
  size_t projected_bytes(int64_t tokens) const override;

  int64_t append_limit(int row) const override;

  void add_row() override;
  void join(LayerState&& other) override;
  void keep(std::span<const int> rows) override;
  std::unique_ptr<LayerState> fork(int row) const override;
  bool trim(int row, int64_t drop) override;

  void begin_step(const StepLayout& layout) override;
  void commit_step() override;
  void abort_step() override;

  void begin_round() override;
  void end_round(std::span<const int64_t> kept) override;

  // Layout "cpu-blocks-1": numbers tokens, first_block, quantized, minimum; ranges are the row's
  // blocks, cells without a token zero.
  Snapshot snapshot(int row) const override;
  void restore(int row, const Snapshot& saved) override;

  // For the kernels.
  const KvBlockLayout& layout() const { return layout_; }  // of plain rows; sizes are those of all
  KvView view(int row) const;
  // Checks that `layout` is what begin_step was told and that nothing was appended yet; from here
  // on view() includes the step's tokens, which the caller writes.
  void mark_appended(const StepLayout& layout);

 private:
  struct Row {
    int64_t tokens = 0;
    int64_t first_block = 0;
    bool quantized = false;
    int64_t minimum = 0;  // tokens it held when it was quantized late: no way back beyond
    std::vector<KvBlockPtr> blocks;
    std::vector<std::byte*> addresses;  // blocks[i]->data()

    void cut(int64_t left);  // to so many tokens
  };
  struct Round {
    std::vector<int64_t> tokens;  // of each row when it began
    std::map<int, Row> plain;     // rows before they were quantized in it
  };
  struct Staged {  // what a step does to a row
    int row = 0;
    int64_t count = 0;
    size_t old_blocks = 0;          // list length before the step
    KvBlockPtr tail;                // private copy of a shared tail block, or null
    std::vector<KvBlockPtr> fresh;  // to be added
  };

  const Row& at(int row) const;
  void require_no_step(const char* operation) const;
  void require_idle(const char* operation) const;  // no step and no round
  const KvBlockLayout& layout_of(const Row& row) const {
    return row.quantized ? quantized_layout_ : layout_;
  }
  void quantize_if_due(int row);
  Staged stage(const StepRow& step_row);
  void drop_unseen_blocks(Row& row) const;
  int64_t first_needed_block(int64_t tokens) const;

  StateSpec spec_;
  KvBlockLayout layout_, quantized_layout_;
  std::shared_ptr<KvBlockPool> pool_;
  std::vector<Row> rows_;
  bool in_step_ = false;
  bool appended_ = false;
  std::vector<Staged> staged_;
  std::vector<int64_t> step_tokens_;  // per row: tokens of this step, empty outside a step
  std::optional<Round> round_;
};

}  // namespace mantou::cpu
