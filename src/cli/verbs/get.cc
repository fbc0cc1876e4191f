#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "cli/find_model.h"
#include "cli/human.h"
#include "cli/verbs/verbs.h"
#include "hub/json_file.h"

namespace mantou::cli {
namespace {

void print_plan(const hub::FetchPlan& plan) {
  fmt::print("{} at {}: {}, of which {} would be fetched\n", plan.listing.repo,
             plan.listing.commit.substr(0, 12), human_bytes(double(plan.bytes)),
             human_bytes(double(plan.missing_bytes)));
  for (const hub::RepoFile& file : plan.files) {
    const bool here = std::none_of(plan.missing.begin(), plan.missing.end(),
                                   [&](const auto& missing) { return missing.path == file.path; });
    fmt::print("  {:>10}  {}{}\n", human_bytes(double(*file.size)), hub::printable(file.path),
               here ? "  (here)" : "");
  }
}

}  // namespace

int run_get(const Options& options) {
  if (options.model.hf_repo.empty())
    fail_param(ErrorCode::kInvalidArgument, "get",
               "get needs a repository of the hub: mantou get ORG/NAME, ORG/NAME:Q4_K_M or "
               "ORG/NAME:FILE");
  const auto wish = hub::parse_wish(options.model.hf_repo);
  if (!wish)
    fail_param(ErrorCode::kInvalidArgument, "get",
               "\"{}\" is no repository's name; write ORG/NAME, ORG/NAME:Q4_K_M or ORG/NAME:FILE",
               hub::printable(options.model.hf_repo));
  hub::Fetcher fetcher(fetch_options(options.model.offline));
  const hub::FetchPlan plan = fetcher.plan(*wish);
  if (options.cache.dry_run) {
    print_plan(plan);
    return 0;
  }
  const auto path = fetch_with_progress(fetcher, plan);
  fmt::print("{}\n", path.string());
  return 0;
}

}  // namespace mantou::cli
