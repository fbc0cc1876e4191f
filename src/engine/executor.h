// The only door to tensors.
//
// An Executor owns the model, the state of every live row and the rows' samplers. The scheduler
// decides who runs, the Executor runs it. Every call is made on the engine thread; only a StopFlag
// may be set from elsewhere. `FakeExecutor` implements the same interface without a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/plan.h"
#include "engine/request.h"
#include "engine/stats.h"
#include "engine/step_plan.h"

namespace mantou {

// What the loaded model on this backend can do; constant while the Executor lives.
struct Capabilities {
  std::string model_id, architecture, backend, numerics_id;
  int64_t context = 0;        // tokens a row may hold, prompt and answer together
  int64_t train_context = 0;  // what the checkpoint was made for
  int vocab_size = 0;
  int max_rows = 1;
  bool uniform_steps = false;  // rows of one step must forward the same number of tokens
  bool lazy = false;  // steps without a token to sample are cheaper than their share of one with
  std::vector<TokenId> end_ids;
};

struct Admission {
  int64_t cached_tokens = 0;  // leading prompt tokens whose state was reused
  int64_t max_tokens = 0;     // the limit after clamping to context and memory
};

enum class Release { kDrop, kKeep };  // kKeep: its state may serve later requests

using Ticket = uint64_t;

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const Capabilities& capabilities() const = 0;

  // Bytes of state of a row with so many tokens; never less for more tokens.
  virtual uint64_t row_bytes(int64_t tokens) const = 0;

  // Whether a row that is still reading its prompt will soon have more of this prompt's state than
  // there is now.
  virtual bool is_worth_waiting(const Request& request) const = 0;

  // Makes a row for the request by its plan: checks its ids and settings, starts from the state of
  // its longest known prefix where that is granted. Errors: kInvalidArgument (ids outside the
  // vocabulary, empty prompt), kResourceExhausted (no memory): nothing was changed then.
  virtual Admission admit(const Request& request, const Plan& plan) = 0;

  // Prompt tokens that one step may forward of a row: up to where its keys and values must be
  // quantized, so that they are the same however the prompt is cut.
  virtual int64_t append_limit(RequestId id) const = 0;

  // A step is a transaction: afterwards each row is either one step further or, on its error or a
  // stop, as it was.
  virtual Ticket submit(const StepPlan& plan) = 0;
  // Submits the step after the outstanding one, whose tokens it goes on from on the device itself,
  // so that device and host do not wait for each other. Nothing where they are one or the host is
  // to choose a token: collect, then submit. A row that ends with the step before has one token
  // more in its state then, and no use for the result.
  virtual std::optional<Ticket> submit_ahead(const StepPlan& /*plan*/) { return std::nullopt; }
  // In the order of the tickets; two are outstanding at most. An Error: the step's rows are lost
  // and can only be dropped.
  virtual StepResults collect(Ticket ticket) = 0;

  virtual CacheStats cache_stats() const { return {}; }

  // Not while a step of the row is outstanding.
  virtual void release(RequestId id, Release how) = 0;
};

}  // namespace mantou
