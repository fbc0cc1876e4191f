#include "base/cpu_features.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "base/error.h"

namespace mantou {
namespace {

// Sets the variable for one test.
struct Environment {
  std::string before;
  bool was_set;
  explicit Environment(const char* value) {
    const char* old = std::getenv("MANTOU_CPU_ISA");
    was_set = old != nullptr;
    if (was_set) before = old;
    setenv("MANTOU_CPU_ISA", value, 1);
  }
  ~Environment() {
    was_set ? setenv("MANTOU_CPU_ISA", before.c_str(), 1) : unsetenv("MANTOU_CPU_ISA");
  }
};

TEST(CpuFeatures, TheEnvironmentLowersTheSet) {
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    const Environment set(std::string(isa_name(isa)).c_str());
    EXPECT_EQ(isa_from_environment(), std::min(isa, detected_isa()));
  }
  const Environment empty("");
  EXPECT_EQ(isa_from_environment(), detected_isa());
}

TEST(CpuFeatures, AnUnknownNameIsAnError) {
  const Environment wrong("avx");
  try {
    isa_from_environment();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.param(), "MANTOU_CPU_ISA");
  }
}

#if defined(__linux__) && defined(__x86_64__)
// The kernel's own list of flags.
TEST(CpuFeatures, DetectionAgreesWithTheSystem) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  while (std::getline(cpuinfo, line) && !line.starts_with("flags")) {
  }
  if (line.empty()) GTEST_SKIP() << "no flags in /proc/cpuinfo";
  std::istringstream words(line);
  int avx2 = 0, avx512 = 0;
  for (std::string word; words >> word;) {
    avx2 += word == "avx2" || word == "fma" || word == "f16c";
    avx512 += word == "avx512f" || word == "avx512bw" || word == "avx512cd" || word == "avx512dq" ||
              word == "avx512vl" || word == "avx512_vnni";
  }
  const Isa expected = avx2 < 3 ? Isa::kScalar : avx512 < 6 ? Isa::kAvx2 : Isa::kAvx512;
  EXPECT_EQ(detected_isa(), expected);
}
#endif

}  // namespace
}  // namespace mantou
