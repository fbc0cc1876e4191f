#include "cli/load.h"

#include <chrono>
#include <functional>
#include <future>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/cpu_count.h"
#include "base/log.h"
#include "base/random.h"
#include "cli/backends.h"
#include "cli/cache_options.h"
#include "cli/find_model.h"
#include "hub/config_reader.h"
#include "hub/directory_config.h"
#include "hub/model_artifact.h"
#include "models/registry.h"
#include "runtime/model_executor.h"

namespace mantou::cli {
namespace {

struct TextSide {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;
  text::OutputFormat output_format;
};

TextSide build_text(const TokenizerSource& source) {
  TextSide side;
  side.tokenizer = text::Tokenizer::build(source);
  side.chat_template = text::ChatTemplate::build(source, side.tokenizer);
  side.output_format = text::choose_format(source.chat_template, [&](std::string_view token) {
    return side.tokenizer->id_of(token) >= 0;
  });
  return side;
}

// With --exact, the ends are those of mlx-lm (utils.py): eos_token_id of generation_config.json, of
// config.json where that has none, and the tokenizer's own.
TokenizerSource tokenizer_source(const hub::ModelArtifact& artifact, Exact exact) {
  TokenizerSource source = artifact.tokenizer();
  if (exact == Exact::kNo) return source;
  source.ends_by_text = false;
  std::vector<int32_t> ends;
  hub::add_end_ids(artifact.generation_config(), artifact.path().string(),
                   std::numeric_limits<int32_t>::max(), ends);
  if (!ends.empty()) source.end_ids = std::move(ends);
  return source;
}

// What a checkpoint recommends; absent fields keep the built-in defaults.
SamplingParams recommended_sampling(const hub::ModelArtifact& artifact) {
  const hub::ConfigReader config = hub::generation_config_reader(artifact);
  SamplingParams params;
  params.temperature = config.get_double("temperature", 0, kMaxTemperature, params.temperature);
  params.top_p = config.get_double("top_p", 0, 1, params.top_p);
  params.top_k = int(config.get_int("top_k", 0, 1 << 30, params.top_k));
  params.min_p = config.get_double("min_p", 0, 1, params.min_p);
  params.repetition_penalty =
      config.get_double("repetition_penalty", 0, kMaxRepetitionPenalty, 0.0);
  if (!config.get_bool("do_sample", true)) params.temperature = 0;
  return params;
}

}  // namespace

LoadedModel load_model(const ModelOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const auto artifact = hub::ModelArtifact::open(find_model(options));
  std::future<TextSide> text =
      std::async(std::launch::async, build_text, tokenizer_source(*artifact, options.exact));

  LoadedModel loaded;
  loaded.name = artifact->name();
  loaded.sampling = recommended_sampling(*artifact);
  loaded.path = artifact->path().string();
  for (const auto& tensor : artifact->tensors()) {
    loaded.bytes += tensor.bytes;
    loaded.parameters +=
        std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
  }
  loaded.threads = options.threads > 0 ? options.threads : default_thread_count();
  auto backend = make_backend(options, loaded.threads);
  auto model = models::load_model(*artifact, *backend);
  const TextSide side = text.get();
  loaded.tokenizer = side.tokenizer;
  loaded.chat_template = side.chat_template;
  loaded.output_format = side.output_format;
  // XTC must not take away the ways to end a line; the sampler adds those that end the answer.
  for (const std::string_view end : {"\n", "\n\n"})
    if (const auto ids = loaded.tokenizer->encode(end, {.add_special = false}); ids.size() == 1)
      loaded.sampling.xtc_special.push_back(ids[0]);

  runtime::ExecutorOptions executor;
  executor.model_id = loaded.name;
  executor.context = options.ctx_size;
  executor.states = state_specs(*model, *backend, options, artifact->path());
  executor.end_ids = loaded.tokenizer->end_ids();
  // mlx-lm's bits are those of a prompt alone.
  executor.max_rows = options.exact == Exact::kNo ? options.parallel : 1;
  executor.prefix_cache_bytes = uint64_t(options.cache_ram) << 20;
  loaded.executor = runtime::make_model_executor(std::move(backend), std::move(model), executor);
  loaded.capabilities = loaded.executor->capabilities();
  if (loaded.capabilities.context > loaded.capabilities.train_context)
    log_warn("--ctx-size is more than the model was made for; beyond that it may talk nonsense",
             {{"ctx_size", loaded.capabilities.context},
              {"made_for", loaded.capabilities.train_context}});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  loaded.load_seconds = took.count();
  return loaded;
}

SchedulerOptions schedule_of(const LoadedModel& model, const ModelOptions& options) {
  if (options.exact != Exact::kNo) return kMlxLmSchedule;
  SchedulerOptions schedule;
  schedule.chunk_alone = options.batch_size;
  schedule.chunk_beside = std::min(schedule.chunk_beside, options.batch_size);
  schedule.uniform = model.capabilities.uniform_steps;
  schedule.last_alone = model.capabilities.lazy;
  return schedule;
}

Request make_request(const LoadedModel& model, const SamplingOptions& sampling,
                     const LimitOptions& limits) {
  Request request;
  request.sampling = model.sampling;
  request.sampling.seed = random_bits();
  apply(sampling, request.sampling);
  apply(limits, request.limits);
  return request;
}

std::string reasoning_format(const PromptOptions& options, const std::string& own) {
  if (options.reasoning_format == "auto") return own;
  text::require_reasoning_format(options.reasoning_format, "reasoning_parser");
  return options.reasoning_format;
}

text::ChatOptions chat_options(const PromptOptions& options) {
  text::ChatOptions chat;
  if (!options.chat_template_kwargs.empty())
    chat.extra = nlohmann::json::parse(options.chat_template_kwargs);
  return chat;
}

}  // namespace mantou::cli
