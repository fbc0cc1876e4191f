// Which files of a repository make a model: one GGUF file (all its parts) of a quantization, or the
// checkpoint that safetensors files, configuration and tokenizer are. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hub/download/answers.h"

namespace mantou::hub {

// What a user asks for: "org/name", "org/name:Q4_K_M", "org/name:file.gguf".
struct RepoWish {
  std::string repo;
  std::string part;  // quantization or file; empty: the default
};

// Empty when `text` is no repository's name; a leading https://huggingface.co/ is taken off.
std::optional<RepoWish> parse_wish(std::string_view text);

// The files to fetch, the first of them the one to open (or config.json of a directory). `part` is
// a file's path or name, or a quantization. Errors list what there is.
std::vector<RepoFile> choose_files(const RepoListing& listing, std::string_view part);

// The index of the GGUF file (by stem) that is the best default: Q4_K_M, or the nearest sensible
// one. Empty when several are equally good.
std::optional<size_t> default_quantization(std::span<const std::string> stems);

}  // namespace mantou::hub
