#include "cli/human.h"

#include <fmt/format.h>

#include <iterator>

namespace mantou::cli {

std::string human_bytes(double bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::string_view format_name(hub::Format format) {
  return format == hub::Format::kGguf ? "gguf" : "directory";
}

}  // namespace mantou::cli
