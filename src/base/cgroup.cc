#include "base/cgroup.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace mantou {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void visit_cgroups(const std::string& cgroup_root, const std::string& self_cgroup,
                   std::string_view controller,
                   const std::function<void(const std::string& directory)>& visit) {
  std::istringstream lines(self_cgroup);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version_2 = controllers.empty();
    const bool governs =
        version_2 ||
        fmt::format(",{},", controllers).find(fmt::format(",{},", controller)) != std::string::npos;
    if (!governs) continue;
    const std::string mount =
        version_2 ? cgroup_root : fmt::format("{}/{}", cgroup_root, controller);
    for (std::string path = line.substr(second + 1);;) {
      visit(mount + path);
      if (path.empty() || path == "/") break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
}

}  // namespace mantou
