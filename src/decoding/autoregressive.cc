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
    for (; committed_ < open_; committed_++) states_[committed_]->commit_step();
  }

 private:
  void abort() {
    for (size_t i = committed_; i < open_; i++) states_[i]->abort_step();
    open_ = committed_;
  }

  const States& states_;
  size_t open_ = 0, committed_ = 0;
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

// The row's next token is the arg-max of the model's logits as they are.
bool is_greedy(const Row& row) {
  return row.sampler.is_plain_greedy(row.generated) && !row.grammar.binds();
}

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
      const auto want = is_greedy(row) ? HeadRequest::Want::kArgMax : HeadRequest::Want::kLogits;
      batch.heads.push_back({first + work.tokens - 1, want});
      batch.sampled.push_back(w);
    }
  }
  return batch;
}

// An arg-max of logits that were finite, found for place `at` of a row.
TokenId checked(int32_t arg_max, size_t at) {
  if (arg_max < 0)
    fail(ErrorCode::kNumerical,
         "the model's logits are not finite (NaN or infinity) at token {} of the row", at);
  return arg_max;
}

GeneratedToken choose(Row& row, const Score& score) {
  if (!score.logits.empty())
    return row.sampler.sample(score.logits, row.tokens, row.generated, row.grammar.allowed());
  return {checked(score.arg_max, row.tokens.size()), 0, {}};
}

bool contains(std::span<const TokenId> ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// The result of a row whose token number `generated`, for place `at`, is `token`.
void found(Row& row, int64_t generated, size_t at, GeneratedToken token,
           std::span<const TokenId> end_ids, RowResult& result) {
  const TokenId id = token.id;
  result.token = std::move(token);
  result.is_end = (!row.request.limits.ignore_eos && contains(end_ids, id)) ||
                  contains(row.request.limits.stop_token_ids, id);
  const bool complete = !result.is_end && row.grammar.commit(std::span(row.tokens).first(at), id);
  if (result.is_end || complete)
    result.finished = FinishReason::kStop;
  else if (generated + 1 >= row.max_tokens)
    result.finished = FinishReason::kLength;
}

void failed(const Error& error, RowResult& result) {
  result.token.reset();
  result.error = error;
  result.finished = FinishReason::kError;
}

void sample_rows(RowBatch& rows, const StepPlan& plan, const Batch& batch,
                 std::span<const Score> scores, std::span<const TokenId> end_ids,
                 StepResults& results) {
  for (size_t i = 0; i < scores.size(); i++) {
    RowResult& result = results.rows[batch.sampled[i]];
    Row& row = rows[rows.index_of(plan.work[batch.sampled[i]].id)];
    if (result.error) continue;  // of its prompt's scores
    try {
      found(row, row.generated, row.tokens.size(), choose(row, scores[i]), end_ids, result);
    } catch (const Error& error) {
      failed(error, result);
    }
  }
}

// Logits of so many prompt tokens exist at once.
constexpr size_t kScoredTogether = 16;

// For rows whose prompt is to be scored: what each token forwarded says of the one behind it. That
// takes long for a long prompt, so the stop flag is polled here, too.
void score_prompts(Backend& backend, const Tensor& hidden, const Head& head, RowBatch& rows,
                   const StepPlan& plan, const Batch& batch, StepResults& results) {
  struct Target {
    size_t work;
    TokenId id;
  };
  std::vector<HeadRequest> requests;
  std::vector<Target> targets;
  for (size_t w = 0; w < plan.work.size(); w++) {
    const StepRow& part = batch.layout.rows[w];
    const Row& row = rows[size_t(part.state_row)];
    if (!row.request.scores) continue;
    const std::vector<TokenId>& prompt = row.request.prompt;
    for (int i = 0; i < part.count && part.position + i + 1 < int64_t(prompt.size()); i++) {
      requests.push_back({part.first + i, HeadRequest::Want::kLogits});
      targets.push_back({w, prompt[size_t(part.position + i + 1)]});
    }
  }
  for (size_t first = 0; first < requests.size(); first += kScoredTogether) {
    if (plan.stop && plan.stop->is_set())
      fail(ErrorCode::kCancelled, "stopped while a prompt was scored");
    const size_t count = std::min(kScoredTogether, requests.size() - first);
    const auto scores = backend.head(hidden, head, std::span(requests).subspan(first, count));
    for (size_t i = 0; i < count; i++) {
      const auto& [w, id] = targets[first + i];
      Row& row = rows[size_t(batch.layout.rows[w].state_row)];
      RowResult& result = results.rows[w];
      if (result.error) continue;
      try {
        result.scores.push_back(row.sampler.score(scores[i].logits, id, row.request.scores->top));
      } catch (const Error& error) {
        failed(error, result);
      }
    }
  }
}

// The tokens that are asked for: begun, where the device can find them by itself, or sampled.
void begin_tokens(Backend& backend, const Tensor& hidden, const Head& head, RowBatch& rows,
                  const StepPlan& plan, const Batch& batch, std::span<const TokenId> end_ids,
                  StartedStep& step) {
  const bool greedy = std::all_of(batch.heads.begin(), batch.heads.end(), [](const auto& h) {
    return h.want == HeadRequest::Want::kArgMax;
  });
  if (greedy && !batch.heads.empty()) step.pending = backend.head_ahead(hidden, head, batch.heads);
  if (!step.pending)
    sample_rows(rows, plan, batch, backend.head(hidden, head, batch.heads), end_ids, step.results);
}

// Rows as they are when the step is done.
void advance(RowBatch& rows, const StepPlan& plan, const Batch& batch, StartedStep& step) {
  for (const Work& work : plan.work) rows[rows.index_of(work.id)].stored += work.tokens;
  for (size_t i = 0; i < batch.sampled.size(); i++) {
    const size_t w = batch.sampled[i];
    Row& row = rows[rows.index_of(plan.work[w].id)];
    if (step.pending) {
      step.awaited.push_back({w, row.tokens.size(), row.generated});
      row.tokens.push_back(token_ahead(int(i)));
    } else if (step.results.rows[w].token) {
      row.tokens.push_back(step.results.rows[w].token->id);
    } else {
      continue;
    }
    row.generated++;
  }
}

}  // namespace

StartedStep start_step(Backend& backend, const models::Model& model, RowBatch& rows,
                       std::span<const TokenId> end_ids, const StepPlan& plan) {
  StartedStep started;
  StepResults& results = started.results;
  for (const Work& work : plan.work) results.rows.push_back({work.id, {}, {}, {}});
  const Batch batch = gather(rows, plan);
  StateTransaction transaction(rows.states(), batch.layout);
  {
    const BackendStep step(backend, batch.layout);
    try {
      const Tensor hidden = model.forward(backend, batch.tokens, rows.states(), plan.stop);
      score_prompts(backend, hidden, model.head(), rows, plan, batch, results);
      begin_tokens(backend, hidden, model.head(), rows, plan, batch, end_ids, started);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCancelled) throw;
      results.stopped = true;
      return started;
    }
  }
  transaction.commit();
  advance(rows, plan, batch, started);
  return started;
}

StepResults finish_step(RowBatch& rows, std::span<const TokenId> end_ids, StartedStep started) {
  if (!started.pending) return std::move(started.results);
  const std::vector<int32_t> tokens = started.pending->wait();
  for (size_t i = 0; i < started.awaited.size(); i++) {
    const StartedStep::Awaited& awaited = started.awaited[i];
    RowResult& result = started.results.rows[awaited.work];
    Row& row = rows[rows.index_of(result.id)];
    if (result.error) continue;  // of its prompt's scores
    try {
      const TokenId id = row.tokens[awaited.at] = checked(tokens[i], awaited.at);
      found(row, awaited.generated, awaited.at, {id, 0, {}}, end_ids, result);
    } catch (const Error& error) {
      failed(error, result);
    }
  }
  return std::move(started.results);
}

bool can_start_ahead(const RowBatch& rows, const StepPlan& plan) {
  return std::all_of(plan.work.begin(), plan.work.end(), [&](const Work& work) {
    const Row& row = rows[rows.index_of(work.id)];
    return work.output == Output::kSample && row.stored + 1 == int64_t(row.tokens.size()) &&
           row.tokens.back() < 0 && row.generated < row.max_tokens && is_greedy(row) &&
           !row.request.constraint.grammar;  // may bind from the awaited token on
  });
}

}  // namespace mantou::decoding
