#include "decoding/autoregressive.h"

#include <algorithm>

#include "base/error.h"

namespace mantou::decoding {
namespace {

// Opens a step on every state; closes it again unless committed.
class StateTransaction {
 public:
  StateTransaction(const States& states, const StepLayout& layout) : states_(states) {
    try {
      for (; open_ < states_.size(); open_++) states_[open_]->begin_step(layout);
    } catch (...) {
      abort();
      throw;
    }
  }
  ~StateTransaction() { abort(); }
  StateTransaction(const StateTransaction&) = delete;
  StateTransaction& operator=(const StateTransaction&) = delete;

  void commit() {
    for (const auto& s : states_) s->commit_step();
    open_ = 0;
  }

 private:
  void abort() {
    for (size_t i = 0; i < open_; i++) states_[i]->abort_step();
    open_ = 0;
  }

  const States& states_;
  size_t open_ = 0;
};

class BackendStep {
 public:
  BackendStep(Backend& backend, const StepLayout& layout) : backend_(backend) {
    backend_.begin_step(layout);
  }
  ~BackendStep() { backend_.end_step(); }
  BackendStep(const BackendStep&) = delete;
  BackendStep& operator=(const BackendStep&) = delete;

 private:
  Backend& backend_;
};

struct Batch {
  StepLayout layout;
  std::vector<TokenId> tokens;
  std::vector<HeadRequest> heads;
  std::vector<size_t> sampled;  // for each head request, its index in the plan
};

Batch gather(RowBatch& rows, const StepPlan& plan) {
  Batch batch;
  for (size_t w = 0; w < plan.work.size(); w++) {
    const Work& work = plan.work[w];
    const size_t index = rows.index_of(work.id);
    const Row& row = rows[index];
    const int64_t left = int64_t(row.tokens.size()) - row.stored;
    const bool ends = work.tokens == left;
    if (work.tokens < 1 || work.tokens > left || (work.output == Output::kSample && !ends))
      fail(ErrorCode::kInternal, "request {}: cannot forward {} of {} tokens", work.id, work.tokens,
           left);
    const int first = batch.layout.total_tokens;
    batch.layout.rows.push_back({int(index), first, work.tokens, row.stored});
    batch.layout.total_tokens += work.tokens;
    const auto begin = row.tokens.begin() + row.stored;
    batch.tokens.insert(batch.tokens.end(), begin, begin + work.tokens);
    if (work.output == Output::kSample) {
      const auto want = row.sampler.is_plain_greedy(row.generated) ? HeadRequest::Want::kArgMax
                                                                   : HeadRequest::Want::kLogits;
      batch.heads.push_back({first + work.tokens - 1, want});
      batch.sampled.push_back(w);
    }
  }
  return batch;
}

GeneratedToken choose(Row& row, const Score& score) {
  if (!score.logits.empty()) return row.sampler.sample(score.logits, row.tokens, row.generated);
  if (score.arg_max < 0)
    fail(ErrorCode::kNumerical,
         "the model's logits are not finite (NaN or infinity) at token {} of the row",
         row.tokens.size());
  return {score.arg_max, 0, {}};
}

bool contains(std::span<const TokenId> ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

std::optional<FinishReason> finish_of(const Row& row, TokenId id,
                                      std::span<const TokenId> end_ids) {
  if (!row.request.limits.ignore_eos && contains(end_ids, id)) return FinishReason::kStop;
  if (contains(row.request.limits.stop_token_ids, id)) return FinishReason::kStop;
  if (row.generated + 1 >= row.max_tokens) return FinishReason::kLength;
  return std::nullopt;
}

void sample_rows(RowBatch& rows, const StepPlan& plan, const Batch& batch,
                 std::span<const Score> scores, std::span<const TokenId> end_ids,
                 StepResults& results) {
  for (size_t i = 0; i < scores.size(); i++) {
    RowResult& result = results.rows[batch.sampled[i]];
    Row& row = rows[rows.index_of(plan.work[batch.sampled[i]].id)];
    try {
      result.token = choose(row, scores[i]);
      result.finished = finish_of(row, result.token->id, end_ids);
    } catch (const Error& error) {
      result.error = error;
      result.finished = FinishReason::kError;
    }
  }
}

}  // namespace

StepResults autoregressive_step(Backend& backend, const models::Model& model, RowBatch& rows,
                                std::span<const TokenId> end_ids, const StepPlan& plan) {
  StepResults results;
  for (const Work& work : plan.work) results.rows.push_back({work.id, {}, {}, {}});
  const Batch batch = gather(rows, plan);
  StateTransaction transaction(rows.states(), batch.layout);
  {
    const BackendStep step(backend, batch.layout);
    try {
      const Tensor hidden = model.forward(backend, batch.tokens, rows.states(), plan.stop);
      sample_rows(rows, plan, batch, backend.head(hidden, model.head(), batch.heads), end_ids,
                  results);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCancelled) throw;
      results.stopped = true;
      return results;
    }
  }
  transaction.commit();
  for (size_t w = 0; w < plan.work.size(); w++) {
    Row& row = rows[rows.index_of(plan.work[w].id)];
    row.stored += plan.work[w].tokens;
    if (results.rows[w].token) {
      row.tokens.push_back(results.rows[w].token->id);
      row.generated++;
    }
  }
  return results;
}

}  // namespace mantou::decoding
