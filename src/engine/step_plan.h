// What a step shall run and what came of it: plain values between scheduler, Executor and decoding.
#pragma once

#include <optional>
#include <vector>

#include "base/error.h"
#include "base/stop_flag.h"
#include "engine/request.h"

namespace mantou {

enum class Output { kNone, kSample };

// One row's part of a step. While prompt tokens remain, `tokens` of them are forwarded; kSample is
// only valid on the chunk that ends the prompt, which need not have it. Afterwards tokens == 1: the
// pending token is forwarded and the next one sampled.
struct Work {
  RequestId id = 0;
  int tokens = 1;
  Output output = Output::kSample;
};

struct StepPlan {
  std::vector<Work> work;
  const StopFlag* stop = nullptr;
};

struct RowResult {
  RequestId id = 0;
  std::optional<GeneratedToken> token;      // present iff a token was sampled
  std::optional<FinishReason> finished;     // an end id, a stop id, a grammar's or the length limit
  std::optional<Error> error;               // ends this row; the others stand
  bool is_end = false;                      // the token is an end or stop id, no part of the answer
  std::vector<GeneratedToken> scores = {};  // of prompt tokens that those forwarded here foretold
};

struct StepResults {
  std::vector<RowResult> rows;  // in the order of StepPlan::work
  bool stopped = false;         // the StopFlag ended it: nothing was committed, rows are as before
};

}  // namespace mantou
