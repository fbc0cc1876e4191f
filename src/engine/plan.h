// What a request gets of what it asks for: decided once, when it enters the queue, and frozen then.
// A pure function of the request, of what the Executor can do and of the memory for its state.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/request.h"

namespace mantou {

class Executor;

struct Plan {
  // A wish that is passed over, and why. It changes how long an answer takes, never the answer:
  // what would change that is refused.
  struct Bypass {
    std::string_view feature, reason;
    bool operator==(const Bypass&) const = default;
  };

  int64_t max_tokens = 0;  // of the answer: its own limit, the context and the memory
  bool reuse = false;      // starts from the state of others
  bool keep = false;       // its own state serves others afterwards
  std::vector<Bypass> bypassed = {};

  bool writes() const { return max_tokens > 0; }
};

// `budget`: bytes that the state of one row may take. Errors: those of token_limit.
Plan resolve_plan(const Request& request, const Executor& executor, uint64_t budget);

}  // namespace mantou
