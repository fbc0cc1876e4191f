#include "base/cpu_features.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"

namespace mantou {
namespace {

constexpr Isa kAll[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512};

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

Isa detected_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni");
  if (avx512) return Isa::kAvx512;
  if (avx2) return Isa::kAvx2;
#endif
  return Isa::kScalar;
}

Isa isa_from_environment() {
  const char* wanted = std::getenv("MANTOU_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') return detected_isa();
  for (Isa isa : kAll) {
    if (isa_name(isa) == wanted) return std::min(isa, detected_isa());
  }
  fail_param(ErrorCode::kInvalidArgument, "MANTOU_CPU_ISA",
             "MANTOU_CPU_ISA is '{}'; it may be scalar, avx2 or avx512", wanted);
}

}  // namespace mantou
