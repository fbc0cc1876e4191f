#include "runtime/model_executor.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>

#include "base/error.h"
#include "decoding/autoregressive.h"

namespace mantou::runtime {
namespace {

using decoding::Row;
using decoding::RowBatch;
using decoding::States;

// The state a session left behind: `tokens` are exactly those the states hold.
struct Kept {
  std::vector<TokenId> tokens;
  States states;
};

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
        rows_(make_states(*backend_, options.states)) {
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

  Admission admit(const Request& request) override {
    check(request);
    const int64_t prompt = int64_t(request.prompt.size());
    const int64_t room = capabilities_.context - prompt;
    const int64_t wanted = request.limits.max_tokens;
    auto row = std::make_unique<Row>(Row{
        request,
        Sampler(request.sampling, request.limits, capabilities_.end_ids, capabilities_.vocab_size),
        request.prompt, 0, 0, wanted < 0 ? room : std::min(wanted, room)});
    Admission admission;
    admission.max_tokens = row->max_tokens;
    for (const auto& state : rows_.states())
      admission.bytes += state->projected_bytes(prompt + row->max_tokens);
    States state = reuse(request, row->stored);
    admission.cached_tokens = row->stored;
    rows_.add(std::move(row), std::move(state));
    return admission;
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

  void release(RequestId id, Release how) override {
    if (!rows_.contains(id)) return;
    const size_t index = rows_.index_of(id);
    const Row& row = rows_[index];
    const std::string session = row.request.cache.session;
    std::optional<Kept> kept;
    if (how == Release::kKeep && !session.empty()) {
      const auto begin = row.tokens.begin();
      kept = Kept{{begin, begin + row.stored}, rows_.fork(index)};
    }
    rows_.remove(index);
    if (kept) kept_[session] = *std::move(kept);
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
    if (int64_t(request.prompt.size()) >= capabilities_.context)
      fail_param(ErrorCode::kResourceExhausted, "prompt",
                 "the prompt has {} tokens, the context holds {}; shorten it or raise --ctx-size",
                 request.prompt.size(), capabilities_.context);
  }

  // The session's kept state cut to what it shares with the prompt (at least one token is left to
  // forward), or nothing.
  States reuse(const Request& request, int64_t& stored) {
    const auto at = kept_.find(request.cache.session);
    if (request.cache.session.empty() || !request.cache.reuse || at == kept_.end()) return {};
    Kept kept = std::move(at->second);
    kept_.erase(at);
    const auto [mine, theirs] = std::mismatch(kept.tokens.begin(), kept.tokens.end(),
                                              request.prompt.begin(), request.prompt.end() - 1);
    const int64_t common = mine - kept.tokens.begin();
    const int64_t drop = int64_t(kept.tokens.size()) - common;
    if (common == 0) return {};
    for (const auto& state : kept.states)
      if (drop > 0 && !state->trim(0, drop)) return {};
    stored = common;
    return std::move(kept.states);
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<models::Model> model_;
  Capabilities capabilities_;
  RowBatch rows_;
  std::map<std::string, Kept> kept_;
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
