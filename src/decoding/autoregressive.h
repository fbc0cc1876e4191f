// One step of plain autoregressive decoding: a flat batch of prompt chunks and pending tokens
// through the model, one sampled token for each row that asked for one. Stateless; engine thread.
#pragma once

#include "decoding/row_batch.h"
#include "engine/step_plan.h"
#include "models/model.h"

namespace mantou::decoding {

// A step that states and rows hold already, though its tokens may not be known yet: those rows end
// in token_ahead(i) until finish_step.
struct StartedStep {
  // A token that is awaited.
  struct Awaited {
    size_t work;        // its index in the plan
    size_t at;          // its place among the row's tokens
    int64_t generated;  // tokens of the row's answer before it
  };
  StepResults results;
  std::unique_ptr<PendingTokens> pending;  // null: the results are complete
  std::vector<Awaited> awaited;
};

// Runs the plan as a transaction: on an exception or a stop every row and state is as before.
// Row errors (NaN logits, nothing left to sample) are in the results.
StartedStep start_step(Backend& backend, const models::Model& model, RowBatch& batch,
                       std::span<const TokenId> end_ids, const StepPlan& plan);

// Waits for the tokens. Steps finish in the order in which they were started, before their rows
// are removed. On an exception the states of the step's rows are lost.
StepResults finish_step(RowBatch& batch, std::span<const TokenId> end_ids, StartedStep started);

// Whether the plan can be started although the tokens of the step before are awaited: each of its
// rows goes on from one of them, greedily, and has not ended with it for its length.
bool can_start_ahead(const RowBatch& batch, const StepPlan& plan);

}  // namespace mantou::decoding
