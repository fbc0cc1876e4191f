// How many CPUs the control group of a process grants it; see default_thread_count in
// thread_pool.h.
#pragma once

#include <string>

namespace mantou {

// The CPU quota in whole CPUs (rounded down, at least 1) of the group that `self_cgroup`, the text
// of /proc/self/cgroup, names under `cgroup_root`, normally /sys/fs/cgroup; the least of the group
// and its parents, version 1 or 2. 0 when there is no limit.
int cgroup_cpu_limit(const std::string& cgroup_root, const std::string& self_cgroup);

}  // namespace mantou
