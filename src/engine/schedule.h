// How prompts are cut into steps. A value; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace mantou {

struct Schedule {
  int prefill_chunk = 512;      // prompt tokens a step forwards at most
  bool last_alone = false;      // the prompt's last token is a step of its own
  bool respects_limits = true;  // steps end where Executor::append_limit says

  // Tokens of the next step of a prompt with `left` > 0 to go, limits aside.
  int64_t step_tokens(int64_t left) const {
    const int64_t tokens = std::min<int64_t>(left, std::max(1, prefill_chunk));
    return last_alone && tokens == left && left > 1 ? left - 1 : tokens;
  }
};

// mlx-lm's generate_step.
inline constexpr Schedule kMlxLmSchedule{2048, true, false};

}  // namespace mantou
