// One step of plain autoregressive decoding: a flat batch of prompt chunks and pending tokens
// through the model, one sampled token for each row that asked for one. Stateless; engine thread.
#pragma once

#include "decoding/row_batch.h"
#include "engine/step_plan.h"
#include "models/model.h"

namespace mantou::decoding {

// Runs the plan as a transaction: on an exception or a stop every row and state is as before.
// Row errors (NaN logits, nothing left to sample) are in the results.
StepResults autoregressive_step(Backend& backend, const models::Model& model, RowBatch& batch,
                                std::span<const TokenId> end_ids, const StepPlan& plan);

}  // namespace mantou::decoding
