#include "backends/cpu/kv_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "backends/cpu/kv_quantize.h"
#include "base/error.h"

namespace mantou::cpu {
namespace {

int64_t blocks_up_to(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

// So that `more` push_backs cannot fail.
template <class T>
void make_room(std::vector<T>& list, size_t more) {
  const size_t size = list.size() + more;
  if (size > list.capacity()) list.reserve(std::max(size, 2 * list.capacity()));
}

}  // namespace

KvRows::KvRows(const StateSpec& spec, std::shared_ptr<KvBlockPool> pool)
    : spec_(spec), layout_(kv_block_layout(spec)), pool_(std::move(pool)) {
  if (spec_.quant.bits > 0) quantized_layout_ = kv_quantized_layout(spec_);
}

const KvRows::Row& KvRows::at(int row) const {
  if (row < 0 || row >= rows()) {
    fail(ErrorCode::kInternal, "KV state: row {} of {} does not exist", row, rows());
  }
  return rows_[row];
}

void KvRows::require_no_step(const char* operation) const {
  if (in_step_) fail(ErrorCode::kInternal, "KV state: {} inside a step", operation);
}

void KvRows::require_idle(const char* operation) const {
  require_no_step(operation);
  if (round_) fail(ErrorCode::kInternal, "KV state: {} inside a round", operation);
}

int64_t KvRows::tokens(int row) const { return at(row).tokens; }

size_t KvRows::bytes(int row) const {
  return at(row).blocks.size() * layout_of(at(row)).block_bytes;
}

size_t KvRows::projected_bytes(int64_t tokens) const {
  const auto size_in = [&](const KvBlockLayout& layout, int64_t count) {
    int64_t blocks = blocks_up_to(count);
    // window − 1 tokens that begin at the last cell of a block touch most blocks; the next token's
    // block exists in any case.
    if (spec_.window > 0) blocks = std::min(blocks, (spec_.window + 61) / kBlockTokens + 1);
    return size_t(blocks) * layout.block_bytes;
  };
  return spec_.quant.most_bytes(
      tokens, [&](int64_t count) { return size_in(layout_, count); },
      [&](int64_t count) { return size_in(quantized_layout_, count); });
}

int64_t KvRows::append_limit(int row) const {
  const int64_t left = spec_.quant.start - at(row).tokens;
  const bool waits = spec_.quant.bits > 0 && !at(row).quantized && left > 0;
  return waits ? left : std::numeric_limits<int64_t>::max();
}

void KvRows::add_row() {
  require_idle("add_row");
  rows_.emplace_back();
  rows_.back().quantized = spec_.quant.bits > 0 && spec_.quant.start == 0;
}

void KvRows::join(LayerState&& other) {
  require_idle("join");
  auto* joining = dynamic_cast<KvRows*>(&other);
  if (joining == nullptr || joining == this || joining->spec_ != spec_) {
    fail(ErrorCode::kInternal, "KV state {} cannot take the rows of {}", spec_.signature(),
         joining == this ? "itself" : other.spec().signature());
  }
  joining->require_idle("join");
  rows_.reserve(rows_.size() + joining->rows_.size());
  std::move(joining->rows_.begin(), joining->rows_.end(), std::back_inserter(rows_));
  joining->rows_.clear();
}

void KvRows::keep(std::span<const int> rows) {
  require_idle("keep");
  std::vector<bool> seen(rows_.size(), false);
  for (int row : rows) {
    at(row);
    if (seen[row]) fail(ErrorCode::kInternal, "KV state: row {} kept twice", row);
    seen[row] = true;
  }
  std::vector<Row> kept;
  kept.reserve(rows.size());
  for (int row : rows) kept.push_back(std::move(rows_[row]));
  rows_ = std::move(kept);
}

std::unique_ptr<LayerState> KvRows::fork(int row) const {
  require_idle("fork");
  auto copy = std::make_unique<KvRows>(spec_, pool_);
  copy->rows_.push_back(at(row));
  return copy;
}

int64_t KvRows::first_needed_block(int64_t tokens) const {
  if (spec_.window == 0) return 0;
  return std::max<int64_t>(0, tokens + 1 - spec_.window) / kBlockTokens;
}

bool KvRows::trim(int row, int64_t drop) {
  require_idle("trim");
  const int64_t left = at(row).tokens - drop;
  if (drop < 0 || left < 0) {
    fail(ErrorCode::kInternal, "KV state: cannot drop {} of {} tokens", drop, at(row).tokens);
  }
  Row& target = rows_[row];
  if (drop == 0) return true;
  if (left < target.minimum || first_needed_block(left) < target.first_block) return false;
  target.cut(left);
  return true;
}

void KvRows::Row::cut(int64_t left) {
  tokens = left;
  const size_t kept = blocks_up_to(left) - first_block;
  blocks.resize(kept);
  addresses.resize(kept);
}

// The new blocks are complete before the old ones go.
void KvRows::quantize_if_due(int number) {
  Row& row = rows_[number];
  if (spec_.quant.bits == 0 || row.quantized || row.tokens < spec_.quant.start) return;
  std::vector<KvBlockPtr> blocks;
  std::vector<std::byte*> addresses;
  for (size_t i = 0; i < row.blocks.size(); i++) {
    const int64_t left = row.tokens - (row.first_block + int64_t(i)) * kBlockTokens;
    blocks.push_back(pool_->allocate(quantized_layout_.block_bytes));
    addresses.push_back(blocks.back()->data());
    quantize_block(layout_, row.addresses[i], quantized_layout_, addresses.back(),
                   int(std::min<int64_t>(left, kBlockTokens)));
  }
  if (round_) round_->plain.emplace(number, row);
  row.blocks = std::move(blocks);
  row.addresses = std::move(addresses);
  row.quantized = true;
  row.minimum = row.tokens;
}

KvRows::Staged KvRows::stage(const StepRow& step_row) {
  const Row& row = at(step_row.state_row);
  if (step_row.count < 0 || step_row.position != row.tokens ||
      step_tokens_[step_row.state_row] > 0) {
    fail(ErrorCode::kInternal, "KV state: a step of {} tokens at {} for row {}, which has {}",
         step_row.count, step_row.position, step_row.state_row, row.tokens);
  }
  step_tokens_[step_row.state_row] = step_row.count;
  Staged staged;
  staged.row = step_row.state_row;
  staged.count = step_row.count;
  staged.old_blocks = row.blocks.size();
  if (staged.count == 0) return staged;
  const size_t block_bytes = layout_of(row).block_bytes;
  if (row.tokens % kBlockTokens != 0 && row.blocks.back().use_count() > 1) {
    staged.tail = pool_->allocate(block_bytes);
    std::memcpy(staged.tail->data(), row.addresses.back(), block_bytes);
  }
  const int64_t end = blocks_up_to(row.tokens + staged.count);
  for (int64_t i = row.first_block + int64_t(row.blocks.size()); i < end; i++) {
    staged.fresh.push_back(pool_->allocate(block_bytes));
  }
  return staged;
}

void KvRows::begin_step(const StepLayout& layout) {
  require_no_step("begin_step");
  step_tokens_.assign(rows_.size(), 0);
  std::vector<Staged> staged;
  staged.reserve(layout.rows.size());
  for (const StepRow& row : layout.rows) {
    at(row.state_row);
    quantize_if_due(row.state_row);
    staged.push_back(stage(row));
    make_room(rows_[row.state_row].blocks, staged.back().fresh.size());
    make_room(rows_[row.state_row].addresses, staged.back().fresh.size());
  }
  // Nothing below can fail.
  for (Staged& change : staged) {
    Row& row = rows_[change.row];
    if (change.tail) {
      row.addresses.back() = change.tail->data();
      row.blocks.back() = std::move(change.tail);
    }
    for (KvBlockPtr& block : change.fresh) {
      row.addresses.push_back(block->data());
      row.blocks.push_back(std::move(block));
    }
  }
  staged_ = std::move(staged);
  in_step_ = true;
  appended_ = false;
}

void KvRows::mark_appended(const StepLayout& layout) {
  bool same = in_step_ && !appended_ && layout.rows.size() == staged_.size();
  for (size_t i = 0; same && i < staged_.size(); i++) {
    const StepRow& row = layout.rows[i];
    same = row.state_row == staged_[i].row && row.count == staged_[i].count &&
           row.position == rows_[row.state_row].tokens;
  }
  if (!same) fail(ErrorCode::kInternal, "KV state: an append that no step announced");
  appended_ = true;
}

KvView KvRows::view(int row) const {
  const Row& viewed = at(row);
  const int64_t staged = appended_ ? step_tokens_[row] : 0;
  return {viewed.addresses, viewed.first_block, viewed.tokens + staged, &layout_of(viewed)};
}

void KvRows::drop_unseen_blocks(Row& row) const {
  const int64_t first = first_needed_block(row.tokens);
  const size_t unseen = std::min<int64_t>(first - row.first_block, row.blocks.size());
  if (unseen == 0) return;
  row.blocks.erase(row.blocks.begin(), row.blocks.begin() + unseen);
  row.addresses.erase(row.addresses.begin(), row.addresses.begin() + unseen);
  row.first_block += unseen;
}

void KvRows::commit_step() {
  if (!in_step_) fail(ErrorCode::kInternal, "KV state: commit_step outside a step");
  const bool empty = std::all_of(staged_.begin(), staged_.end(),
                                 [](const Staged& change) { return change.count == 0; });
  if (!appended_ && !empty) {
    fail(ErrorCode::kInternal, "KV state: commit_step before the step's tokens were appended");
  }
  for (const Staged& change : staged_) {
    rows_[change.row].tokens += change.count;
    if (!round_) drop_unseen_blocks(rows_[change.row]);
  }
  staged_.clear();
  in_step_ = appended_ = false;
}

void KvRows::abort_step() {
  if (!in_step_) fail(ErrorCode::kInternal, "KV state: abort_step outside a step");
  for (const Staged& change : staged_) {
    rows_[change.row].blocks.resize(change.old_blocks);
    rows_[change.row].addresses.resize(change.old_blocks);
  }
  staged_.clear();
  in_step_ = appended_ = false;
}

void KvRows::begin_round() {
  require_idle("begin_round");
  Round round;
  for (const Row& row : rows_) round.tokens.push_back(row.tokens);
  round_ = std::move(round);
}

void KvRows::end_round(std::span<const int64_t> kept) {
  require_no_step("end_round");
  bool fits = round_ && kept.size() == rows_.size();
  for (size_t r = 0; fits && r < kept.size(); r++)
    fits = kept[r] >= 0 && kept[r] <= rows_[r].tokens - round_->tokens[r];
  if (!fits) fail(ErrorCode::kInternal, "KV state: the end of a round that was not so begun");
  for (size_t r = 0; r < kept.size(); r++) {
    Row& row = rows_[r];
    const int64_t left = round_->tokens[r] + kept[r];
    const auto plain = round_->plain.find(int(r));
    if (plain != round_->plain.end() && left <= row.minimum) row = std::move(plain->second);
    if (left < row.tokens) row.cut(left);
    drop_unseen_blocks(row);
  }
  round_.reset();
}

}  // namespace mantou::cpu
