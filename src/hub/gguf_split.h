// The names of GGUF files that are one part of several: "model-00002-of-00003.gguf". Pure functions
// of paths; any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace mantou::hub {

struct GgufPart {
  std::string model;          // "model"
  int number = 1, count = 1;  // 1 ≤ number ≤ count
};

// Empty when the file's name is not that of a part.
std::optional<GgufPart> gguf_part(const std::filesystem::path& file);

// Whether the name is that of a model or a part of one: not of an image tower ("mmproj") or an
// importance matrix, which lie beside models.
bool is_gguf_model(const std::filesystem::path& file);

// The path of another part of the model that `file` is a part of.
std::filesystem::path gguf_sibling(const std::filesystem::path& file, const GgufPart& part,
                                   int number);

// The file's name without ".gguf" and what makes it a part.
std::string gguf_stem(const std::filesystem::path& file);

}  // namespace mantou::hub
