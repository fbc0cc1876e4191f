// A request from its admission to its end: what it holds, how far it is, its times and counts. Of
// step_loop.cc alone; engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "engine/step_loop.h"

namespace mantou {

struct StepLoop::Row {
  std::shared_ptr<Generation> generation;
  Ledger::Reservation reserved;
  Clock::time_point admitted;
  Outcome outcome;     // filled in as the row goes
  int64_t stored = 0;  // prompt tokens whose state exists
  Plan plan;
  uint64_t next_sequence = 0;
  std::optional<Clock::time_point> first_token;
  Clock::time_point last_token;
  std::optional<Clock::time_point> paused;  // since when its reader is behind
  // Its outcome was delivered; the Executor's row goes when no step of it is on its way.
  bool finished = false;
  bool keep = false;
  int slot = 0;
  std::shared_ptr<const RowSettings> settings;

  RequestId id() const { return generation->id(); }

  void count_token(Clock::time_point now, EngineStats& stats);
  // Completes the outcome and counts it.
  void end(FinishReason reason, std::optional<Error> error, CancelReason cancel,
           Clock::time_point now, EngineStats& stats);
  RowStats report(Clock::time_point now) const;
};

}  // namespace mantou
