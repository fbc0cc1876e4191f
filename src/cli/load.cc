#include "cli/load.h"

#include <chrono>
#include <future>

#include "backends/cpu/cpu_backend.h"
#include "base/log.h"
#include "hub/config_reader.h"
#include "hub/model_artifact.h"
#include "hub/resolve.h"
#include "models/registry.h"
#include "runtime/model_executor.h"

namespace mantou::cli {
namespace {

struct TextSide {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;
};

TextSide build_text(const TokenizerSource& source) {
  TextSide side;
  side.tokenizer = text::Tokenizer::build(source);
  side.chat_template = text::ChatTemplate::build(source, side.tokenizer);
  return side;
}

mantou::KvType kv_type_of(KvType type) {
  switch (type) {
    case KvType::kF16:
      return mantou::KvType::kF16;
    case KvType::kBF16:
      return mantou::KvType::kBF16;
    case KvType::kF32:
      break;
  }
  return mantou::KvType::kF32;
}

// What a checkpoint recommends; absent fields keep the built-in defaults.
SamplingParams recommended_sampling(const hub::ModelArtifact& artifact) {
  const hub::ConfigReader config(artifact.generation_config(),
                                 (artifact.path() / "generation_config.json").string());
  SamplingParams params;
  params.temperature = config.get_double("temperature", 0, 100, params.temperature);
  params.top_p = config.get_double("top_p", 0, 1, params.top_p);
  params.top_k = int(config.get_int("top_k", 0, 1 << 30, params.top_k));
  params.min_p = config.get_double("min_p", 0, 1, params.min_p);
  params.repetition_penalty = config.get_double("repetition_penalty", 0, 100, 0.0);
  if (!config.get_bool("do_sample", true)) params.temperature = 0;
  return params;
}

}  // namespace

LoadedModel load_model(const ModelOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const auto artifact = hub::ModelArtifact::open(hub::resolve_model(options.model));
  std::future<TextSide> text = std::async(std::launch::async, build_text, artifact->tokenizer());

  LoadedModel loaded;
  loaded.name = artifact->name();
  loaded.sampling = recommended_sampling(*artifact);
  auto backend = cpu::make_cpu_backend({options.threads, options.compute == Compute::kF32});
  auto model = models::load_model(*artifact, *backend);
  const TextSide side = text.get();
  loaded.tokenizer = side.tokenizer;
  loaded.chat_template = side.chat_template;
  if (loaded.chat_template->is_fallback())
    log::warn("{}: the checkpoint has no chat template, ChatML is used", loaded.name);

  runtime::ExecutorOptions executor;
  executor.model_id = loaded.name;
  executor.context = options.ctx_size;
  executor.kv_type = kv_type_of(options.kv_type);
  executor.end_ids = loaded.tokenizer->end_ids();
  loaded.executor = runtime::make_model_executor(std::move(backend), std::move(model), executor);
  loaded.capabilities = loaded.executor->capabilities();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  loaded.load_seconds = took.count();
  return loaded;
}

}  // namespace mantou::cli
