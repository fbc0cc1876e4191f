// Reader of safetensors files and of the shards of a checkpoint directory.
//
// The whole header is checked when a file is opened: sizes, types, shapes against bytes, offsets
// inside the file without overlaps (gaps are tolerated), names unique. Tensors are views into the
// mapping, which they keep alive; their data may be unaligned. Stateless; any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/raw_tensor.h"

namespace mantou::hub {

// The tensors of one file, in the order of their data.
std::vector<RawTensor> parse_safetensors(std::span<const std::byte> bytes,
                                         const std::string& origin,
                                         const std::shared_ptr<const void>& keep_alive);
std::vector<RawTensor> open_safetensors(const std::filesystem::path& path);

// All weights of a directory: the shards that model.safetensors.index.json names (a missing shard
// or tensor is an error that names it); without an index model*.safetensors, else all
// *.safetensors.
std::vector<RawTensor> open_shards(const std::filesystem::path& directory);

}  // namespace mantou::hub
