#include "tensor/snapshot.h"

#include <fmt/format.h>

#include "base/error.h"

namespace mantou {

SnapshotReader::SnapshotReader(const Snapshot& snapshot, std::string_view layout,
                               const std::string& signature)
    : snapshot_(snapshot) {
  if (snapshot.layout != layout)
    refuse(fmt::format("its layout is \"{}\", not \"{}\"", snapshot.layout, layout));
  if (snapshot.signature != signature)
    refuse(fmt::format("it holds \"{}\", not \"{}\"", snapshot.signature, signature));
}

int64_t SnapshotReader::number(const std::string& name, int64_t low, int64_t high) const {
  const auto at = snapshot_.numbers.find(name);
  if (at == snapshot_.numbers.end()) refuse(fmt::format("it has no \"{}\"", name));
  if (at->second < low || at->second > high)
    refuse(fmt::format("\"{}\" is {}, must be {} to {}", name, at->second, low, high));
  return at->second;
}

void SnapshotReader::require_ranges(const std::vector<size_t>& sizes) const {
  if (snapshot_.ranges.size() != sizes.size())
    refuse(fmt::format("it has {} byte ranges, not {}", snapshot_.ranges.size(), sizes.size()));
  for (size_t i = 0; i < sizes.size(); i++)
    if (snapshot_.ranges[i].bytes.size() != sizes[i])
      refuse(fmt::format("\"{}\" has {} bytes, not {}", snapshot_.ranges[i].name,
                         snapshot_.ranges[i].bytes.size(), sizes[i]));
}

void SnapshotReader::refuse(const std::string& what) const {
  fail(ErrorCode::kInvalidArgument, "a saved KV state cannot be used: {}", what);
}

}  // namespace mantou
