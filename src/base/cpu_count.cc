#include "base/cpu_count.h"

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "base/cgroup.h"

#if defined(__linux__)
#include <sched.h>
#endif

namespace mantou {
namespace {

// "quota period" in microseconds of CPU time; a quota of "max" or −1 is no limit.
std::optional<int> whole_cpus(const std::string& text) {
  std::istringstream in(text);
  int64_t quota = 0, period = 0;
  if (!(in >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return int(std::max<int64_t>(1, quota / period));
}

// The limit in one directory: cpu.max of version 2, or the two files of version 1.
std::optional<int> limit_in(const std::string& directory) {
  if (const auto limit = whole_cpus(read_text(directory + "/cpu.max"))) return limit;
  return whole_cpus(read_text(directory + "/cpu.cfs_quota_us") + " " +
                    read_text(directory + "/cpu.cfs_period_us"));
}

#if defined(__linux__)
// Distinct physical cores among the CPUs this process may run on; 0 when the kernel does not say.
int affine_cores() {
  constexpr int kMaxCpus = 8192;
  cpu_set_t* allowed = CPU_ALLOC(kMaxCpus);
  if (allowed == nullptr) return 0;
  const size_t bytes = CPU_ALLOC_SIZE(kMaxCpus);
  std::set<std::string> cores;
  if (sched_getaffinity(0, bytes, allowed) == 0) {
    for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
      if (!CPU_ISSET_S(size_t(cpu), bytes, allowed)) continue;
      const std::string name = "cpu" + std::to_string(cpu);
      const std::string siblings =
          read_text("/sys/devices/system/cpu/" + name + "/topology/thread_siblings_list");
      cores.insert(siblings.empty() ? name : siblings);
    }
  }
  CPU_FREE(allowed);
  return int(cores.size());
}
#else
int affine_cores() { return 0; }
#endif

}  // namespace

int cgroup_cpu_limit(const std::string& cgroup_root, const std::string& self_cgroup) {
  int least = 0;
  visit_cgroups(cgroup_root, self_cgroup, "cpu", [&](const std::string& directory) {
    if (const auto limit = limit_in(directory))
      least = least == 0 ? *limit : std::min(least, *limit);
  });
  return least;
}

int default_thread_count() {
  int count = affine_cores();
  if (count == 0) count = int(std::thread::hardware_concurrency());
  const int limit = cgroup_cpu_limit("/sys/fs/cgroup", read_text("/proc/self/cgroup"));
  if (limit > 0) count = std::min(count, limit);
  return std::max(count, 1);
}

}  // namespace mantou
