#include "base/available_memory.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/cgroup.h"

namespace mantou {
namespace {

// "max" and missing files are no number.
std::optional<uint64_t> read_number(const std::string& path) {
  std::istringstream in(read_text(path));
  uint64_t value = 0;
  if (!(in >> value)) return std::nullopt;
  return value;
}

// The number behind `key` at the beginning of a line.
std::optional<uint64_t> field(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

// The names of the files are those of version 2 or 1.
std::optional<uint64_t> left_in(const std::string& directory, const char* limit_file,
                                const char* usage_file, std::string_view cache_key) {
  const auto limit = read_number(directory + limit_file);
  const auto usage = read_number(directory + usage_file);
  if (!limit || !usage) return std::nullopt;
  const uint64_t droppable = field(read_text(directory + "/memory.stat"), cache_key).value_or(0);
  const uint64_t held = *usage - std::min(*usage, droppable);
  return *limit - std::min(*limit, held);
}

}  // namespace

uint64_t meminfo_available(const std::string& meminfo) {
  return field(meminfo, "MemAvailable:").value_or(0) * 1024;
}

uint64_t cgroup_memory_left(const std::string& cgroup_root, const std::string& self_cgroup) {
  uint64_t least = UINT64_MAX;
  visit_cgroups(cgroup_root, self_cgroup, "memory", [&](const std::string& directory) {
    least = std::min(
        {least,
         left_in(directory, "/memory.max", "/memory.current", "inactive_file").value_or(UINT64_MAX),
         left_in(directory, "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                 "total_inactive_file")
             .value_or(UINT64_MAX)});
  });
  return least;
}

uint64_t available_memory() {
  const uint64_t machine = meminfo_available(read_text("/proc/meminfo"));
  return std::min(machine, cgroup_memory_left("/sys/fs/cgroup", read_text("/proc/self/cgroup")));
}

}  // namespace mantou
