#include <fmt/format.h>

#include <cstdio>

#include "cli/human.h"
#include "cli/verbs/verbs.h"
#include "hub/download/garbage.h"
#include "hub/resolve.h"

namespace mantou::cli {
namespace {

std::string_view kind_name(hub::Garbage::Kind kind) {
  switch (kind) {
    case hub::Garbage::Kind::kBlob:
      return "unused";
    case hub::Garbage::Kind::kIncomplete:
      return "incomplete";
    case hub::Garbage::Kind::kLock:
      return "lock";
  }
  return "";
}

}  // namespace

int run_gc(const Options& options) {
  const auto cache = hub::ModelPlaces::from_environment().hf_cache;
  const auto garbage = hub::collect_garbage(cache, options.cache.yes);
  uint64_t bytes = 0;
  for (const hub::Garbage& item : garbage) {
    bytes += item.bytes;
    fmt::print("{:<10}  {:>10}  {}\n", kind_name(item.kind), human_bytes(double(item.bytes)),
               item.path.string());
  }
  if (garbage.empty())
    fmt::print("nothing to remove in {}\n", cache.string());
  else
    fmt::print("{} files, {}: {}\n", garbage.size(), human_bytes(double(bytes)),
               options.cache.yes ? "removed" : "`mantou gc --yes` removes them");
  return 0;
}

}  // namespace mantou::cli
