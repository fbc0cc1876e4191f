// The key/value cache that the command line asks for. Pure functions.
#pragma once

#include <filesystem>
#include <vector>

#include "cli/options.h"
#include "models/model.h"
#include "runtime/kv_scheme.h"

namespace mantou::cli {

// Contradictions are kInvalidArgument naming the flags.
runtime::KvScheme kv_scheme(const ModelOptions& options);

// The states of a model that `backend` has packed and whose checkpoint is at `path`.
std::vector<StateSpec> state_specs(const models::Model& model, const Backend& backend,
                                   const ModelOptions& options, const std::filesystem::path& path);

}  // namespace mantou::cli
