// Which tokens of a step's flat batch belong to whom. Host data, made once a step by the Executor
// and shared by all layers; engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mantou {

// Rows are stored one after another: row r owns tokens [first, first + count) of the flat batch, at
// positions position, position + 1, …; `state_row` is its row in every LayerState.
struct StepRow {
  int state_row = 0;
  int first = 0;
  int count = 0;
  int64_t position = 0;
};

struct StepLayout {
  std::vector<StepRow> rows;
  int total_tokens = 0;
};

}  // namespace mantou
