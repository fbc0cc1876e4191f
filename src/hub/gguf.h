// Reader of GGUF files (versions 2 and 3, little-endian): metadata and tensors as they lie there.
//
// The whole structure is checked when the file is opened: lengths, counts, types, alignment, and
// that tensor data lies inside the file without overlaps; afterwards nothing can be out of bounds.
// Tensors are views into the mapping, which they keep alive. A model may be split over several
// files, which are opened as one. docs/gguf.md describes the format as used here. Immutable once
// made; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/raw_tensor.h"

namespace mantou::hub {

enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

// One metadata entry; `bytes` are the payload as stored.
struct GgufValue {
  std::string key;
  GgufType type = GgufType::kU8;  // of the value, or of an array's elements
  bool array = false;
  uint64_t count = 1;
  std::span<const std::byte> bytes;  // of a string or an array of strings: with the lengths
};

class GgufFile {
 public:
  // Any part of a split model opens the whole: the metadata of its first part, the tensors of all.
  static std::shared_ptr<const GgufFile> open(const std::filesystem::path& path);
  // One whole file, or one part as it lies there. `origin` names the bytes in messages;
  // `keep_alive` owns them.
  static std::shared_ptr<const GgufFile> parse(std::span<const std::byte> bytes, std::string origin,
                                               std::shared_ptr<const void> keep_alive);

  // The file; of a split model the first.
  const std::string& origin() const { return origin_; }
  const std::vector<GgufValue>& metadata() const { return metadata_; }  // in file order
  // In file order; names are unique, shapes outermost first.
  const std::vector<RawTensor>& tensors() const { return tensors_; }

  const RawTensor* find_tensor(std::string_view name) const;  // nullptr: there is none

  bool has(std::string_view key) const { return find(key) != nullptr; }
  // Empty when the key is absent; a value of another kind is an error that names file and key.
  std::optional<int64_t> get_int(std::string_view key) const;
  std::optional<double> get_double(std::string_view key) const;
  std::optional<bool> get_bool(std::string_view key) const;
  std::optional<std::string> get_string(std::string_view key) const;
  std::vector<std::string> get_strings(std::string_view key) const;
  std::vector<int64_t> get_ints(std::string_view key) const;  // one number: an array; flags: 0, 1
  std::vector<float> get_floats(std::string_view key) const;

 private:
  GgufFile() = default;
  friend class GgufParser;
  const GgufValue* find(std::string_view key) const;

  std::string origin_;
  std::shared_ptr<const void> keep_alive_;
  std::vector<GgufValue> metadata_;
  std::unordered_map<std::string, size_t> index_;
  std::vector<RawTensor> tensors_;
};

}  // namespace mantou::hub
