#include <fmt/format.h>

#include <cstdio>

#include "cli/verbs/verbs.h"

namespace mantou::cli {

int run_help(const Options& options) {
  if (options.markdown)
    fmt::print("{}", help_markdown(verbs()));
  else if (options.topic.empty())
    fmt::print("{}", help_overview(verbs()));
  else
    fmt::print("{}", help_verb(find_verb(options.topic)));
  return 0;
}

}  // namespace mantou::cli
