#include <fmt/format.h>

#include <cstdio>

#include "cli/help_models.h"
#include "cli/verbs/verbs.h"

namespace mantou::cli {

int run_help(const Options& options) {
  if (options.topic == "models")
    fmt::print("{}", options.markdown ? help_models_markdown() : help_models());
  else if (options.markdown)
    fmt::print("{}", help_markdown(verbs()));
  else if (options.topic.empty())
    fmt::print("{}", help_overview(verbs()));
  else
    fmt::print("{}", help_verb(find_verb(options.topic)));
  return 0;
}

}  // namespace mantou::cli
