#include "engine/scheduler.h"

#include <algorithm>
#include <limits>

namespace mantou {
namespace {

// A running mean in which the last value counts for half.
void blend(double& mean, double value) { mean = mean > 0 ? (mean + value) / 2 : value; }

}  // namespace

void Scheduler::add(RequestId id, int64_t prompt, int64_t stored, bool writes) {
  rows_.push_back({id, prompt - stored, writes});
}

void Scheduler::remove(RequestId id) {
  std::erase_if(rows_, [&](const Row& row) { return row.id == id; });
}

void Scheduler::hold(RequestId id, bool held) {
  if (Row* const row = find(id)) row->held = held;
}

bool Scheduler::has_work() const {
  return std::any_of(rows_.begin(), rows_.end(), [](const Row& row) { return !row.held; });
}

StepPlan Scheduler::next(const AppendLimit& limit) const {
  std::vector<const Row*> reading, writing;
  for (const Row& row : rows_)
    if (!row.held) (row.left > 0 ? reading : writing).push_back(&row);
  StepPlan plan;
  const bool prompts = !reading.empty() && (!options_.uniform || writing.empty() || prompts_next_);
  if (!prompts || !options_.uniform)
    for (const Row* row : writing) plan.work.push_back({row->id, 1, Output::kSample});
  if (!prompts) return plan;
  const int64_t budget = budget_beside(writing.size());
  if (options_.uniform)
    add_uniform(plan, reading, budget, limit);
  else
    add_chunks(plan, reading, budget, limit);
  return plan;
}

void Scheduler::apply(const StepPlan& plan, double seconds) {
  int64_t read = 0, wrote = 0;
  for (const Work& work : plan.work) {
    Row* const row = find(work.id);
    (row && row->left > 0 ? read : wrote) += work.tokens;
    if (row) row->left = std::max<int64_t>(0, row->left - work.tokens);
  }
  prompts_next_ = read == 0;
  if (read == 0)
    blend(token_seconds_, seconds);
  else
    blend(prompt_seconds_,
          std::max(1e-9, seconds - (wrote > 0 ? token_seconds_ : 0)) / double(read));
}

Scheduler::Row* Scheduler::find(RequestId id) {
  const auto at =
      std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) { return row.id == id; });
  return at == rows_.end() ? nullptr : &*at;
}

int64_t Scheduler::budget_beside(size_t writing) const {
  if (writing == 0) return options_.chunk_alone;
  const double fits = prompt_seconds_ > 0 ? options_.step_seconds / prompt_seconds_ : 0;
  return int64_t(std::clamp(fits, double(options_.chunk_least), double(options_.chunk_beside)));
}

// What one step may read of a row, given so many tokens.
int64_t Scheduler::chunk_of(const Row& row, int64_t tokens, const AppendLimit& limit) const {
  tokens = options_.chunk_of(row.left, tokens);
  return options_.respects_limits ? std::min(tokens, limit(row.id)) : tokens;
}

Work Scheduler::chunk(const Row& row, int64_t tokens) {
  const bool samples = row.writes && tokens == row.left;
  return {row.id, int(tokens), samples ? Output::kSample : Output::kNone};
}

void Scheduler::add_chunks(StepPlan& plan, const std::vector<const Row*>& reading, int64_t budget,
                           const AppendLimit& limit) const {
  const auto shortest = std::min_element(
      reading.begin(), reading.end(), [](const Row* a, const Row* b) { return a->left < b->left; });
  const size_t favoured = size_t(shortest - reading.begin());
  std::vector<int64_t> tokens(reading.size(), 0);
  const auto give = [&](size_t i, int64_t most) {
    const int64_t more = chunk_of(*reading[i], tokens[i] + most, limit) - tokens[i];
    tokens[i] += more;
    budget -= more;
  };
  const int64_t half = favoured == 0 ? budget : std::max<int64_t>(1, budget / 2);
  give(0, half);
  if (budget > 0) give(favoured, budget);
  for (size_t i = 0; i < reading.size() && budget > 0; i++) give(i, budget);
  for (size_t i = 0; i < reading.size(); i++)
    if (tokens[i] > 0) plan.work.push_back(chunk(*reading[i], tokens[i]));
}

// Rows at their last token go first and by themselves; else all go as far as the one that stops
// earliest.
void Scheduler::add_uniform(StepPlan& plan, const std::vector<const Row*>& reading, int64_t budget,
                            const AppendLimit& limit) const {
  const bool last =
      std::any_of(reading.begin(), reading.end(), [](const Row* row) { return row->left == 1; });
  const int64_t share = std::max<int64_t>(1, budget / int64_t(reading.size()));
  int64_t tokens = last ? 1 : std::numeric_limits<int>::max();
  if (!last)
    for (const Row* row : reading) tokens = std::min(tokens, chunk_of(*row, share, limit));
  for (const Row* row : reading)
    if (!last || row->left == 1) plan.work.push_back(chunk(*row, tokens));
}

}  // namespace mantou
