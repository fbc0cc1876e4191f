// The composition root's main piece: from a model's name to everything that generates with it.
// Main thread.
#pragma once

#include <memory>
#include <string>

#include "cli/options.h"
#include "engine/executor.h"
#include "engine/scheduler.h"
#include "text/chat_template.h"
#include "text/formats/formats.h"
#include "text/tokenizer.h"

namespace mantou::cli {

struct LoadedModel {
  std::string name;
  std::string path;
  size_t bytes = 0;        // of all tensors in the file
  int64_t parameters = 0;  // their elements
  int threads = 0;         // the backend's
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;
  text::OutputFormat output_format;
  std::unique_ptr<Executor> executor;
  Capabilities capabilities;
  SamplingParams sampling;  // built-in defaults under those of generation_config.json
  double load_seconds = 0;
};

// Finds (and fetches) what options name, opens, checks and packs it. Errors name the file and what
// is wrong.
LoadedModel load_model(const ModelOptions& options);

// How the engine shall cut prompts.
SchedulerOptions schedule_of(const LoadedModel& model, const ModelOptions& options);

// A request with the options' limits and sampling over the model's defaults; a seed of its own
// unless one was given. The prompt is the caller's.
Request make_request(const LoadedModel& model, const SamplingOptions& sampling,
                     const LimitOptions& limits);

// The format of reasoning that --reasoning-parser names; `own` for "auto".
std::string reasoning_format(const PromptOptions& options, const std::string& own);

// The template's variables: those of --chat-template-kwargs.
text::ChatOptions chat_options(const PromptOptions& options);

}  // namespace mantou::cli
