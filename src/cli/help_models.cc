#include "cli/help_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "hub/gguf_names.h"
#include "models/registry.h"

namespace mantou::cli {
namespace {

// What GGUF files call the family; empty when the format does not define it.
std::string_view gguf_name(const models::Family& family) {
  for (const hub::GgufArchitecture& known : hub::gguf_architectures())
    if (known.model_type == family.model_type ||
        std::find(known.also.begin(), known.also.end(), family.model_type) != known.also.end())
      return known.name;
  return {};
}

}  // namespace

std::string help_models() {
  std::string out = fmt::format("{:<18}{:<15}{}\n", "model_type", "in GGUF files", "models");
  for (const models::Family& family : models::families())
    out += fmt::format("{:<18}{:<15}{}\n", family.model_type, gguf_name(family), family.models);
  return out +
         "\nmodel_type stands in config.json. `mantou inspect MODEL` says whether a checkpoint "
         "would load.\n";
}

std::string help_models_markdown() {
  std::string out =
      "# Models that run\n\n"
      "Made from the tables of families and GGUF architectures by `mantou help models "
      "--markdown`;\n"
      "do not edit. The `model_type` stands in config.json (in its `text_config`, when there is "
      "one:\n"
      "towers for images and sound are left out with a notice). `mantou inspect MODEL` says "
      "whether "
      "a\n"
      "checkpoint would load.\n\n"
      "| model_type | in GGUF files | models |\n|---|---|---|\n";
  for (const models::Family& family : models::families()) {
    const std::string_view name = gguf_name(family);
    out += fmt::format("| `{}` | {} | {} |\n", family.model_type,
                       name.empty() ? "–" : fmt::format("`{}`", name), family.models);
  }
  return out +
         "\nTypes of weights: [GGUF](gguf.md), [MLX](mlx.md). A new family: "
         "[adding-a-model.md](adding-a-model.md).\n";
}

}  // namespace mantou::cli
