// From an artifact to its model. The families are one line each of the table in registry.cc, see
// docs/adding-a-model.md.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "hub/model_artifact.h"
#include "models/model.h"

namespace mantou::models {

struct Family {
  std::string_view model_type;  // config.json's, that of text_config when there is one
  std::string_view models;      // some that have it
  std::unique_ptr<Model> (*load)(hub::ModelArtifact& artifact, Backend& backend);
};

std::span<const Family> families();

// Loads the artifact's model. Errors: an architecture nobody implements (kUnsupported, lists the
// supported ones and the nearest), configuration and weights that do not fit each other, weights
// that nobody consumed (kCorruptData, names them).
std::unique_ptr<Model> load_model(hub::ModelArtifact& artifact, Backend& backend);

}  // namespace mantou::models
