// The composition root's main piece: from a model's name to everything that generates with it.
// This is the only place that names a concrete backend. Main thread.
#pragma once

#include <memory>
#include <string>

#include "cli/options.h"
#include "engine/executor.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace mantou::cli {

struct LoadedModel {
  std::string name;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;
  std::unique_ptr<Executor> executor;
  Capabilities capabilities;
  SamplingParams sampling;  // built-in defaults under those of generation_config.json
  double load_seconds = 0;
};

// Resolves options.model, opens, checks and packs it. Errors name the file and what is wrong. Says
// once on standard error when ChatML stands in for a missing chat template.
LoadedModel load_model(const ModelOptions& options);

}  // namespace mantou::cli
