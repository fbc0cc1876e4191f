#include "cli/find_model.h"

#include <unistd.h>

#include "base/error.h"
#include "cli/fetch_progress.h"
#include "cli/human.h"
#include "hub/json_file.h"
#include "hub/resolve.h"

namespace mantou::cli {
namespace {

namespace fs = std::filesystem;

fs::path fetch(const hub::RepoWish& wish) {
  hub::Fetcher fetcher(fetch_options(false));
  const hub::FetchPlan plan = fetcher.plan(wish);
  if (!plan.missing.empty())
    fmt::print(stderr, "fetching {} ({})\n", wish.repo, human_bytes(double(plan.missing_bytes)));
  return fetch_with_progress(fetcher, plan);
}

// Where the repository's model is; fetched when it is not here whole. `param` names the wish in an
// error.
fs::path find_or_fetch(const ModelOptions& options, const hub::RepoWish& wish, const char* param,
                       const std::string& text) {
  const fs::path cache = hub::ModelPlaces::from_environment().hf_cache;
  if (const fs::path found = hub::find_fetched(cache, wish); !found.empty()) return found;
  if (options.offline || hub::Endpoint::from_environment().offline)
    fail_param(ErrorCode::kNotFound, param,
               "{} is not (or not whole) in {}, and --offline or HF_HUB_OFFLINE forbids fetching "
               "it; `mantou ls` shows what is here",
               text, cache.string());
  return fetch(wish);
}

// The repository of --hf-repo: exactly this one, never one with a similar name.
fs::path find_repository(const ModelOptions& options) {
  const auto wish = hub::parse_wish(options.hf_repo);
  if (!wish)
    fail_param(ErrorCode::kInvalidArgument, "--hf-repo",
               "--hf-repo: \"{}\" is no repository's name; write ORG/NAME or ORG/NAME:QUANT",
               hub::printable(options.hf_repo));
  return find_or_fetch(options, *wish, "--hf-repo", options.hf_repo);
}

}  // namespace

hub::FetchOptions fetch_options(bool offline) {
  hub::FetchOptions options;
  options.hf_cache = hub::ModelPlaces::from_environment().hf_cache;
  options.endpoint = hub::Endpoint::from_environment();
  options.endpoint.offline |= offline;
  return options;
}

fs::path fetch_with_progress(hub::Fetcher& fetcher, const hub::FetchPlan& plan) {
  ProgressLine line(stderr, ::isatty(STDERR_FILENO) != 0);
  hub::FetchEvents events;
  events.progress = [&](const hub::FetchProgress& progress) { line.update(progress); };
  events.note = [&](const std::string& message) { line.note(message); };
  return fetcher.fetch(plan, events);
}

fs::path find_model(const ModelOptions& options) {
  if (!options.hf_repo.empty()) return find_repository(options);
  try {
    return hub::resolve_model(options.model);
  } catch (const Error& error) {
    // "org/name" that is not here may be on the hub; a path or a part of a name is not.
    const auto wish = hub::parse_wish(options.model);
    const bool repository =
        wish && wish->repo.find('/') != std::string::npos && !wish->repo.ends_with(".gguf");
    if (error.code() != ErrorCode::kNotFound || !repository) throw;
    return find_or_fetch(options, *wish, "model", options.model);
  }
}

}  // namespace mantou::cli
