// How many threads are worth starting here: what the machine has and the system grants this
// process. Pure reads of /proc and /sys; any thread.
#pragma once

#include <string>

namespace mantou {

// Threads worth starting on this machine: distinct physical cores of the process' CPU affinity, no
// more than the cgroup CPU quota (v1 or v2, rounded down) allows; at least 1.
int default_thread_count();

// The CPU quota in whole CPUs (rounded down, at least 1) of the group that `self_cgroup`, the text
// of /proc/self/cgroup, names under `cgroup_root`, normally /sys/fs/cgroup; the least of the group
// and its parents, version 1 or 2. 0 when there is no limit.
int cgroup_cpu_limit(const std::string& cgroup_root, const std::string& self_cgroup);

}  // namespace mantou
