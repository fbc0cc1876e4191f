#include "engine/fake_executor.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace mantou {

FakeScript::FakeScript() {
  capabilities.model_id = "fake";
  capabilities.architecture = "fake";
  capabilities.backend = "fake";
  capabilities.numerics_id = "fake";
  capabilities.context = capabilities.train_context = 4096;
  capabilities.vocab_size = 1024;
  capabilities.end_ids = {0};
}

std::vector<FakeEvent> FakeRecord::events() const {
  std::lock_guard lock(mutex_);
  return events_;
}

std::vector<std::string> FakeRecord::violations() const {
  std::lock_guard lock(mutex_);
  return violations_;
}

int FakeRecord::live_rows() const {
  std::lock_guard lock(mutex_);
  return live_rows_;
}

FakeExecutor::FakeExecutor(FakeScript script, std::shared_ptr<FakeRecord> record)
    : script_(std::move(script)),
      record_(record ? std::move(record) : std::make_shared<FakeRecord>()) {}

Admission FakeExecutor::admit(const Request& request, const Plan& plan) {
  const int64_t max_tokens = plan.max_tokens;
  if (script_.on_admit) script_.on_admit(request);
  const Capabilities& can = script_.capabilities;
  if (int(rows_.size()) >= can.max_rows) violation("more rows than max_rows");
  if (request.prompt.empty())
    fail_param(ErrorCode::kInvalidArgument, "prompt", "the prompt is empty");
  for (const TokenId id : request.prompt) {
    if (id < 0 || id >= can.vocab_size)
      fail_param(ErrorCode::kInvalidArgument, "prompt", "token id {} is not in the vocabulary", id);
  }
  if (int64_t(request.prompt.size()) + max_tokens > can.context) violation("beyond the context");
  Row row{request};
  row.stored = plan.reuse && script_.cached_tokens ? script_.cached_tokens(request) : 0;
  row.max_tokens = max_tokens;
  uint64_t needed = row_bytes(int64_t(request.prompt.size()) + max_tokens);
  for (const auto& [id, other] : rows_)
    needed += row_bytes(int64_t(other.request.prompt.size()) + other.max_tokens);
  if (needed > script_.state_bytes) violation("rows need more memory than there is");
  const Admission admission{row.stored, max_tokens};
  if (!rows_.emplace(request.id, std::move(row)).second) violation("request admitted twice");
  note({FakeEvent::Kind::kAdmit, request.id});
  return admission;
}

int64_t FakeExecutor::append_limit(RequestId id) const {
  const int64_t left = script_.quantized_start - rows_.at(id).stored;
  return left > 0 ? left : std::numeric_limits<int64_t>::max();
}

Ticket FakeExecutor::submit(const StepPlan& plan) {
  if (!outstanding_.empty()) violation("submitted while a ticket is outstanding");
  return start(plan);
}

std::optional<Ticket> FakeExecutor::submit_ahead(const StepPlan& plan) {
  if (outstanding_.size() != 1) violation("there is no step to go on from");
  const auto goes_on = [&](const Work& work) {
    const auto at = rows_.find(work.id);
    return at != rows_.end() && at->second.generated < at->second.max_tokens;
  };
  if (!script_.ahead || !std::all_of(plan.work.begin(), plan.work.end(), goes_on))
    return std::nullopt;
  return start(plan);
}

Ticket FakeExecutor::start(const StepPlan& plan) {
  if (int(plan.work.size()) > script_.capabilities.max_rows) violation("too many rows in a step");
  StepResults results;
  if (!sleep_through_layers(plan.stop)) {
    results.stopped = true;
    note({FakeEvent::Kind::kStopped, plan.work.empty() ? 0 : plan.work[0].id});
  } else {
    for (const Work& work : plan.work) {
      if (script_.on_submit) script_.on_submit(work);
      results.rows.push_back(run(work));
    }
  }
  outstanding_.emplace_back(++last_ticket_, std::move(results));
  return last_ticket_;
}

StepResults FakeExecutor::collect(Ticket ticket) {
  if (outstanding_.empty() || outstanding_.front().first != ticket) {
    violation("no such ticket");
    return {};
  }
  StepResults results = std::move(outstanding_.front().second);
  outstanding_.pop_front();
  if (script_.on_collect) script_.on_collect(results);
  return results;
}

RowResult FakeExecutor::run(const Work& work) {
  RowResult result;
  result.id = work.id;
  const auto at = rows_.find(work.id);
  if (at == rows_.end()) {
    violation("step of an unknown row");
    return result;
  }
  Row& row = at->second;
  if (script_.row_error) result.error = script_.row_error(work);
  if (result.error) return result;
  note({FakeEvent::Kind::kStep, work.id, work.tokens, work.output});
  const int64_t left = int64_t(row.request.prompt.size()) - row.stored;
  const bool prefill = left > 0;
  if (work.tokens < 1 || work.tokens > (prefill ? left : 1)) violation("wrong number of tokens");
  const bool writes = row.max_tokens > 0;
  if ((work.output == Output::kSample) != (writes && (!prefill || work.tokens == left)))
    violation("sampling away from the end of the row");
  if (script_.checks_quantized_start && row.stored < script_.quantized_start &&
      row.stored + work.tokens > script_.quantized_start)
    violation("a step across the start of quantization");
  if (row.request.scores) score(row, work.tokens, result);
  if (prefill) row.stored += work.tokens;
  if (work.output == Output::kNone) return result;

  const int64_t index = row.generated++;
  result.token = script_.token ? script_.token(row.request, index)
                               : GeneratedToken{TokenId(1 + index % 1000), 0, {}};
  const auto among = [&](const std::vector<TokenId>& ids) {
    return std::find(ids.begin(), ids.end(), result.token->id) != ids.end();
  };
  const Limits& limits = row.request.limits;
  if ((!limits.ignore_eos && among(script_.capabilities.end_ids)) || among(limits.stop_token_ids)) {
    result.finished = FinishReason::kStop;
    result.is_end = true;
  } else if (row.generated >= row.max_tokens) {
    result.finished = FinishReason::kLength;
  }
  return result;
}

// Each token of the prompt has its own id as log-probability.
void FakeExecutor::score(const Row& row, int tokens, RowResult& result) {
  const std::vector<TokenId>& prompt = row.request.prompt;
  for (int64_t i = row.stored + 1; i <= row.stored + tokens && i < int64_t(prompt.size()); i++)
    result.scores.push_back({prompt[size_t(i)], -float(prompt[size_t(i)]), {}});
}

bool FakeExecutor::sleep_through_layers(const StopFlag* stop) const {
  for (int layer = 0; layer < script_.layers; ++layer) {
    if (stop != nullptr && stop->is_set()) return false;
    if (script_.layer_time.count() > 0) std::this_thread::sleep_for(script_.layer_time);
  }
  return true;
}

void FakeExecutor::release(RequestId id, Release how) {
  for (const auto& [ticket, results] : outstanding_)
    for (const RowResult& row : results.rows)
      if (row.id == id) violation("released while a step of the row is outstanding");
  if (rows_.erase(id) > 0) note({FakeEvent::Kind::kRelease, id, 0, {}, how});
}

void FakeExecutor::note(FakeEvent event) {
  std::lock_guard lock(record_->mutex_);
  record_->live_rows_ = int(rows_.size());
  record_->events_.push_back(event);
}

void FakeExecutor::violation(std::string what) {
  std::lock_guard lock(record_->mutex_);
  record_->violations_.push_back(std::move(what));
}

}  // namespace mantou
