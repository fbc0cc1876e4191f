#include "engine/plan.h"

#include "engine/executor.h"
#include "engine/token_limit.h"

namespace mantou {
namespace {

// A feature that requests may ask for; `obstacle` says why this one cannot have it, "" if it can.
struct Rule {
  std::string_view feature;
  bool Plan::* granted;
  bool (*asked)(const Request&);
  std::string_view (*obstacle)(const Request&);
};

constexpr Rule kRules[] = {
    {"prefix_cache", &Plan::reuse, [](const Request& r) { return r.cache.reuse; },
     [](const Request& r) -> std::string_view {
       return r.scores ? "every token of a scored prompt has to be read" : "";
     }},
    {"prefix_cache_store", &Plan::keep, [](const Request& r) { return r.cache.keep; },
     [](const Request&) -> std::string_view { return ""; }},
};

}  // namespace

Plan resolve_plan(const Request& request, const Executor& executor, uint64_t budget) {
  Plan plan;
  plan.max_tokens = token_limit(request, executor, budget);
  for (const Rule& rule : kRules) {
    if (!rule.asked(request)) continue;
    const std::string_view obstacle = rule.obstacle(request);
    plan.*rule.granted = obstacle.empty();
    if (!obstacle.empty()) plan.bypassed.push_back({rule.feature, obstacle});
  }
  return plan;
}

}  // namespace mantou
