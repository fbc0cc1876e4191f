// The live rows of an Executor and their layer states, kept in step: row i is state row i
// everywhere.
//
// Owned by the Executor; engine thread. Membership changes between steps only.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "decoding/row_grammar.h"
#include "engine/request.h"
#include "sampling/sampler.h"
#include "tensor/layer_state.h"

namespace mantou::decoding {

using States = std::vector<std::unique_ptr<LayerState>>;

// One request being generated. `tokens` is the prompt and every sampled token; state exists for the
// first `stored` of them, so after the prompt the last one is pending.
struct Row {
  Request request;
  Sampler sampler;
  std::vector<TokenId> tokens;
  int64_t stored = 0;
  int64_t generated = 0;
  int64_t max_tokens = 0;
  RowGrammar grammar;
};

class RowBatch {
 public:
  explicit RowBatch(States empty_states) : states_(std::move(empty_states)) {}

  size_t size() const { return rows_.size(); }
  Row& operator[](size_t index) { return *rows_[index]; }
  const Row& operator[](size_t index) const { return *rows_[index]; }
  const States& states() const { return states_; }

  // Index of the request's row; an unknown id is kInternal.
  size_t index_of(RequestId id) const;
  bool contains(RequestId id) const;

  // Appends a row whose state is empty, or `state` (one-row states holding row.stored tokens).
  // All or nothing.
  void add(std::unique_ptr<Row> row, States state = {});
  void remove(size_t index);
  // The row's state as one-row states sharing its blocks.
  States fork(size_t index) const;

 private:
  States states_;
  std::vector<std::unique_ptr<Row>> rows_;
};

}  // namespace mantou::decoding
