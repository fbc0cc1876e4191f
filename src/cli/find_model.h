// From what the options name to a checkpoint on this machine; what is missing is fetched first,
// with progress on standard error. Main thread (or the one that loads).
#pragma once

#include <filesystem>

#include "cli/options.h"
#include "hub/download/fetch.h"

namespace mantou::cli {

// --hf-repo, else --model: a path, a name, or a repository of the hub. --offline fetches nothing.
std::filesystem::path find_model(const ModelOptions& options);

// What fetching needs to know of the environment.
hub::FetchOptions fetch_options(bool offline);

// Downloads what the plan lacks and returns what to open.
std::filesystem::path fetch_with_progress(hub::Fetcher& fetcher, const hub::FetchPlan& plan);

}  // namespace mantou::cli
