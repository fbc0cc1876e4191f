#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli/human.h"
#include "cli/verbs/verbs.h"
#include "hub/json_file.h"
#include "hub/resolve.h"

namespace mantou::cli {
namespace {

void print_json(const std::vector<hub::ModelEntry>& models) {
  nlohmann::json list = nlohmann::json::array();
  for (const hub::ModelEntry& model : models)
    list.push_back({{"name", model.name},
                    {"path", model.path.string()},
                    {"format", format_name(model.format)},
                    {"bytes", model.bytes}});
  fmt::print("{}\n", to_text(list, 2));
}

}  // namespace

int run_ls(const Options& options) {
  const auto places = hub::ModelPlaces::from_environment();
  const auto models = hub::list_models(places);
  if (options.json) {
    print_json(models);
    return 0;
  }
  if (models.empty()) {
    fmt::print(stderr, "no models in {} or {}\n", places.own.string(), places.hf_cache.string());
    return 0;
  }
  size_t width = 0;
  for (const hub::ModelEntry& model : models) width = std::max(width, model.name.size());
  for (const hub::ModelEntry& model : models)
    fmt::print("{:<{}}  {:>10}  {}\n", hub::printable(model.name), width,
               human_bytes(double(model.bytes)), format_name(model.format));
  return 0;
}

}  // namespace mantou::cli
