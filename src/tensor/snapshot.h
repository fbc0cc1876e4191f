// One row of one layer's state as bytes, for whoever keeps it elsewhere: a prefix cache, a file.
//
// Immutable. Ranges share the state's memory where that cannot change any more, and keep it alive.
// Rows with the same tokens, stored alike, give the same bytes. Read and released on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mantou {

struct SnapshotRange {
  std::string name;  // "block 3", "plane 0"
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;  // of the bytes
};

struct Snapshot {
  std::string layout;                      // how the backend lays out ranges: "cpu-blocks-1"
  std::string signature;                   // StateSpec::signature()
  std::map<std::string, int64_t> numbers;  // "tokens", and what else the layout needs
  std::vector<SnapshotRange> ranges;

  size_t bytes() const {
    size_t sum = 0;
    for (const SnapshotRange& range : ranges) sum += range.bytes.size();
    return sum;
  }
};

// Reads the numbers of a snapshot from elsewhere; Error (kInvalidArgument) for what is missing or
// out of bounds.
class SnapshotReader {
 public:
  // Refuses another layout or signature.
  SnapshotReader(const Snapshot& snapshot, std::string_view layout, const std::string& signature);
  // In [low, high].
  int64_t number(const std::string& name, int64_t low, int64_t high) const;
  // Exactly these sizes, in order.
  void require_ranges(const std::vector<size_t>& sizes) const;
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  const Snapshot& snapshot_;
};

}  // namespace mantou
