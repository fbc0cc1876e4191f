#include "runtime/model_executor.h"

#include <algorithm>
#include <deque>
#include <limits>

#include "base/error.h"
#include "decoding/autoregressive.h"
#include "runtime/prefix_cache.h"

namespace mantou::runtime {
namespace {

using decoding::Row;
using decoding::RowBatch;
using decoding::States;

// A hit of fewer tokens is not worth the look of it, a prompt that shares fewer is not waited for.
constexpr int64_t kLeastHit = 16, kLeastWait = 256;

States make_states(Backend& backend, const std::vector<StateSpec>& specs) {
  States states;
  for (const StateSpec& spec : specs) states.push_back(backend.make_state(spec));
  return states;
}

class ModelExecutor final : public Executor {
 public:
  ModelExecutor(std::unique_ptr<Backend> backend, std::unique_ptr<models::Model> model,
                const ExecutorOptions& options)
      : backend_(std::move(backend)),
        model_(std::move(model)),
        rows_(make_states(*backend_, options.states)),
        cache_(options.prefix_cache_bytes) {
    const models::ModelInfo& info = model_->info();
    capabilities_.model_id = options.model_id;
    capabilities_.architecture = info.architecture;
    capabilities_.backend = backend_->name();
    capabilities_.numerics_id = backend_->numerics_id();
    capabilities_.context = options.context > 0 ? options.context : info.train_context;
    capabilities_.train_context = info.train_context;
    capabilities_.vocab_size = info.vocab;
    capabilities_.max_rows = options.max_rows;
    capabilities_.uniform_steps = backend_->uniform_steps();
    capabilities_.lazy = backend_->lazy();
    capabilities_.end_ids = options.end_ids;
  }

  const Capabilities& capabilities() const override { return capabilities_; }

  uint64_t row_bytes(int64_t tokens) const override {
    uint64_t bytes = 0;
    for (const auto& state : rows_.states()) bytes += state->projected_bytes(tokens);
    return bytes;
  }

  bool is_worth_waiting(const Request& request) const override {
    int64_t known = cache_.longest(request.prompt), coming = 0;
    for (size_t i = 0; i < rows_.size(); i++) {
      const Row& row = rows_[i];
      const int64_t common = common_prefix(row.request.prompt, request.prompt);
      known = std::max(known, std::min(common, row.stored));
      if (row.stored < common) coming = std::max(coming, common);
    }
    return coming >= known + kLeastWait;
  }

  Admission admit(const Request& request, const Plan& plan) override {
    check(request);
    auto row = std::make_unique<Row>(Row{
        request,
        Sampler(request.sampling, request.limits, capabilities_.end_ids, capabilities_.vocab_size),
        request.prompt, 0, 0, plan.max_tokens,
        decoding::RowGrammar(request.constraint, capabilities_.vocab_size, masks_)});
    PrefixCache::Hit hit = plan.reuse ? longest_state(request.prompt) : PrefixCache::Hit{};
    row->stored = hit.tokens;
    rows_.add(std::move(row), std::move(hit.states));
    return {hit.tokens, plan.max_tokens};
  }

  int64_t append_limit(RequestId id) const override {
    const int row = int(rows_.index_of(id));
    int64_t limit = std::numeric_limits<int64_t>::max();
    for (const auto& state : rows_.states()) limit = std::min(limit, state->append_limit(row));
    return limit;
  }

  Ticket submit(const StepPlan& plan) override {
    if (!started_.empty())
      fail(ErrorCode::kInternal, "ticket {} is not collected yet", started_.front().ticket);
    return start(plan);
  }

  std::optional<Ticket> submit_ahead(const StepPlan& plan) override {
    if (started_.size() != 1 || !started_.front().step.pending ||
        !decoding::can_start_ahead(rows_, plan))
      return std::nullopt;
    return start(plan);
  }

  StepResults collect(Ticket ticket) override {
    if (started_.empty() || started_.front().ticket != ticket)
      fail(ErrorCode::kInternal, "ticket {} is not the next one outstanding", ticket);
    decoding::StartedStep step = std::move(started_.front().step);
    started_.pop_front();
    return decoding::finish_step(rows_, capabilities_.end_ids, std::move(step));
  }

  CacheStats cache_stats() const override {
    const PrefixCache::Stats stats = cache_.stats();
    return {stats.entries, stats.bytes, cache_.capacity(), stats.evicted};
  }

  void release(RequestId id, Release how) override {
    if (!rows_.contains(id)) return;
    const size_t index = rows_.index_of(id);
    const Row& row = rows_[index];
    std::vector<TokenId> tokens(row.tokens.begin(), row.tokens.begin() + row.stored);
    States states;
    if (how == Release::kKeep && row.stored > 0) states = rows_.fork(index);
    rows_.remove(index);
    if (!states.empty()) cache_.put(std::move(tokens), std::move(states));
  }

 private:
  struct Started {
    Ticket ticket;
    decoding::StartedStep step;
  };

  Ticket start(const StepPlan& plan) {
    decoding::StartedStep step =
        decoding::start_step(*backend_, *model_, rows_, capabilities_.end_ids, plan);
    started_.push_back({++last_ticket_, std::move(step)});
    return last_ticket_;
  }

  void check(const Request& request) const {
    if (rows_.contains(request.id))
      fail(ErrorCode::kInternal, "request {} was admitted twice", request.id);
    if (int(rows_.size()) >= capabilities_.max_rows)
      fail(ErrorCode::kResourceExhausted, "all {} rows are taken", capabilities_.max_rows);
    if (request.prompt.empty())
      fail_param(ErrorCode::kInvalidArgument, "prompt", "the prompt is empty");
    for (const TokenId id : request.prompt)
      if (id < 0 || id >= capabilities_.vocab_size)
        fail_param(ErrorCode::kInvalidArgument, "prompt",
                   "token id {} is outside the vocabulary of {}", id, capabilities_.vocab_size);
    if (request.scores && (request.scores->top < 0 || request.scores->top > kMaxTopLogprobs))
      fail_param(ErrorCode::kInvalidArgument, "logprobs", "'logprobs' must be 0 to {}, not {}",
                 kMaxTopLogprobs, request.scores->top);
  }

  // Of what is kept and of the rows that live.
  PrefixCache::Hit longest_state(std::span<const TokenId> prompt) {
    PrefixCache::Hit best;
    const std::span<const TokenId> usable = prompt.first(prompt.size() - 1);
    for (size_t i = 0; i < rows_.size(); i++) {
      const Row& row = rows_[i];
      const std::span<const TokenId> stored = std::span(row.tokens).first(size_t(row.stored));
      const int64_t common = common_prefix(stored, usable);
      if (common < kLeastHit || common <= best.tokens) continue;
      States states = rows_.fork(i);
      if (cut(states, row.stored, common)) best = {common, std::move(states)};
    }
    if (auto hit = cache_.find(prompt, std::max(best.tokens, kLeastHit - 1)))
      best = *std::move(hit);
    return best;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<models::Model> model_;
  Capabilities capabilities_;
  decoding::MaskWorker masks_;
  RowBatch rows_;
  PrefixCache cache_;
  std::deque<Started> started_;  // and not collected
  Ticket last_ticket_ = 0;
};

}  // namespace

std::unique_ptr<Executor> make_model_executor(std::unique_ptr<Backend> backend,
                                              std::unique_ptr<models::Model> model,
                                              const ExecutorOptions& options) {
  return std::make_unique<ModelExecutor>(std::move(backend), std::move(model), options);
}

}  // namespace mantou::runtime
