#include "base/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace mantou {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); i++) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); j++) {
      const size_t above = row[j];
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above + 1, row[j - 1] + 1, replaced});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view name, std::span<const std::string> known) {
  size_t best = std::max<size_t>(2, name.size() / 3) + 1;
  std::string found;
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> known) {
  const std::string found = nearest(name, known);
  return found.empty() ? "" : "; did you mean " + found + "?";
}

}  // namespace mantou
