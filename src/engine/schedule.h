// How prompts are cut into steps. A value; any thread.
#pragma once

namespace mantou {

struct Schedule {
  int prefill_chunk = 512;      // prompt tokens a step forwards at most
  bool last_alone = false;      // the prompt's last token is a step of its own
  bool respects_limits = true;  // steps end where Executor::append_limit says
};

// mlx-lm's generate_step.
inline constexpr Schedule kMlxLmSchedule{2048, true, false};

}  // namespace mantou
