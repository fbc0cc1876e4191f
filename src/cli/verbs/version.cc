#include <fmt/format.h>

#include <cstdio>
#include <thread>

#include "base/cpu_features.h"
#include "cli/verbs/verbs.h"
#if __has_include("cli/build_info.h")
#include "cli/build_info.h"
#else  // configured without cmake/build_info.cmake
namespace mantou::cli {
constexpr char kProgramVersion[] = "(unknown version)", kRevision[] = "",
               kBuildType[] = "unknown build", kCompiler[] = "g++ " __VERSION__;
}
#endif

namespace mantou::cli {

int run_version(const Options&) {
  const std::string revision = *kRevision ? fmt::format(" ({})", kRevision) : "";
  const std::string_view detected = isa_name(detected_isa()),
                         used = isa_name(isa_from_environment());
  fmt::print("mantou {}{}\n", kProgramVersion, revision);
  fmt::print("build    {}, {}\n", kCompiler, kBuildType);
  fmt::print("machine  {}, {} threads\n",
             detected == used ? std::string(used) : fmt::format("{} (of {})", used, detected),
             std::thread::hardware_concurrency());
  return 0;
}

}  // namespace mantou::cli
