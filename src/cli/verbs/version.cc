#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "base/cpu_count.h"
#include "base/cpu_features.h"
#include "cli/build_info.h"
#include "cli/verbs/verbs.h"

namespace mantou::cli {

int run_version(const Options&) {
  const std::string revision = *kRevision ? fmt::format(" ({})", kRevision) : "";
  const std::string_view detected = isa_name(detected_isa()),
                         used = isa_name(isa_from_environment());
  fmt::print("mantou {}{}\n", kProgramVersion, revision);
  fmt::print("build    {}, {}\n", kCompiler, kBuildType);
  fmt::print("machine  {}, {} threads\n",
             detected == used ? std::string(used) : fmt::format("{} (of {})", used, detected),
             default_thread_count());
  return 0;
}

}  // namespace mantou::cli
