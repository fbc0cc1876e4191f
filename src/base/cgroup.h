// The control groups of this process, as Linux shows them in files. Any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace mantou {

// The file's text; empty when it cannot be read.
std::string read_text(const std::string& path);

// Calls visit(directory) for the group of each line of `self_cgroup` (/proc/self/cgroup) that
// governs `controller`, in version 2 ("0::/path") or 1 ("4:cpu,cpuacct:/path"), and for all groups
// above it.
void visit_cgroups(const std::string& cgroup_root, const std::string& self_cgroup,
                   std::string_view controller,
                   const std::function<void(const std::string& directory)>& visit);

}  // namespace mantou
