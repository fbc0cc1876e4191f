// How much memory a program may still take here: what the machine has and what the system grants
// this process. Pure reads of /proc and /sys; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace mantou {

// Bytes; 0 when the system does not say.
uint64_t available_memory();

// MemAvailable of /proc/meminfo's text, in bytes; 0 when it has none.
uint64_t meminfo_available(const std::string& meminfo);

// What the memory limits leave to the group that `self_cgroup`, the text of /proc/self/cgroup,
// names under `cgroup_root`: the least of the group and its parents, version 1 or 2; caches that
// can be dropped count as free. UINT64_MAX when there is no limit.
uint64_t cgroup_memory_left(const std::string& cgroup_root, const std::string& self_cgroup);

}  // namespace mantou
