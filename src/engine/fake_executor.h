// An Executor without a model, for tests: tokens by script, faults on demand, every call recorded
// and checked against the contract of executor.h. Breaking the contract is a recorded violation.
//
// Owned like any Executor; the script and the observers may be used from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/executor.h"

namespace mantou {

// What a FakeExecutor does. Functions are called on the engine thread; an empty one does nothing.
struct FakeScript {
  Capabilities capabilities;  // defaults: context 4096, vocabulary 1024, end id 0

  // Token `index` (from 0) of the answer. The default repeats 1, 2, 3, … and never ends.
  std::function<GeneratedToken(const Request&, int64_t index)> token;
  std::function<void(const Request&)> on_admit;                // may throw
  std::function<void(const Work&)> on_submit;                  // may throw
  std::function<std::optional<Error>(const Work&)> row_error;  // ends one row
  std::function<int64_t(const Request&)> cached_tokens;
  std::function<bool(const Request&)> is_worth_waiting;
  uint64_t state_bytes = std::numeric_limits<uint64_t>::max();  // what all rows may need at once
  int64_t quantized_start = 0;         // > 0: no step may cross this many tokens of a row, and that
  bool checks_quantized_start = true;  // is checked
  bool ahead = false;                  // takes the step after the outstanding one
  std::function<void(const StepResults&)> on_collect;  // may throw

  // A step is this many layers of this length; the StopFlag is polled between them.
  int layers = 1;
  std::chrono::microseconds layer_time{0};

  FakeScript();
};

struct FakeEvent {
  enum class Kind { kAdmit, kStep, kStopped, kRelease } kind;
  RequestId id = 0;
  int tokens = 0;      // kStep
  Output output = {};  // kStep
  Release how = {};    // kRelease
};

// What a FakeExecutor saw; outlives it.
class FakeRecord {
 public:
  std::vector<FakeEvent> events() const;
  std::vector<std::string> violations() const;
  int live_rows() const;

 private:
  friend class FakeExecutor;
  mutable std::mutex mutex_;
  std::vector<FakeEvent> events_;
  std::vector<std::string> violations_;
  int live_rows_ = 0;
};

class FakeExecutor final : public Executor {
 public:
  explicit FakeExecutor(FakeScript script, std::shared_ptr<FakeRecord> record = nullptr);

  const Capabilities& capabilities() const override { return script_.capabilities; }
  uint64_t row_bytes(int64_t tokens) const override { return uint64_t(tokens); }
  bool is_worth_waiting(const Request& request) const override {
    return script_.is_worth_waiting && script_.is_worth_waiting(request);
  }
  Admission admit(const Request& request, const Plan& plan) override;
  int64_t append_limit(RequestId id) const override;
  Ticket submit(const StepPlan& plan) override;
  std::optional<Ticket> submit_ahead(const StepPlan& plan) override;
  StepResults collect(Ticket ticket) override;
  void release(RequestId id, Release how) override;

 private:
  struct Row {
    Request request;
    int64_t stored = 0;  // prompt tokens forwarded or cached
    int64_t generated = 0;
    int64_t max_tokens = 0;
  };

  Ticket start(const StepPlan& plan);
  RowResult run(const Work& work);
  static void score(const Row& row, int tokens, RowResult& result);
  bool sleep_through_layers(const StopFlag* stop) const;  // false: stopped
  void note(FakeEvent event);
  void violation(std::string what);

  FakeScript script_;
  std::shared_ptr<FakeRecord> record_;
  std::map<RequestId, Row> rows_;
  std::deque<std::pair<Ticket, StepResults>> outstanding_;
  Ticket last_ticket_ = 0;
};

}  // namespace mantou
