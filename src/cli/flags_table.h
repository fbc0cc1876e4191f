// The parts of the flags table, a file each beside this one, and what their lines are written with.
// For flags_table.cc and the parts alone. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/choices.h"
#include "cli/flags.h"

// The place of `group.member` in an Options; CHOICE: of an enum.
#define FIELD(path) [](Options& o) -> Target { return &o.path; }
#define CHOICE(path) [](Options& o) -> Target { return choice(o.path); }

namespace mantou::cli {

// Sets of verbs.
inline constexpr uint32_t kAnswering = kGenerate | kChat | kServe;
inline constexpr uint32_t kRunning = kAnswering | kBench;
inline constexpr uint32_t kOpening = kRunning | kTokenize | kInspect | kFit;

std::vector<Flag> model_flags();
std::vector<Flag> answer_flags();
std::vector<Flag> serve_flags();

}  // namespace mantou::cli
