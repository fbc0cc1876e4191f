#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "cli/cache_options.h"
#include "cli/find_model.h"
#include "cli/human.h"
#include "cli/memory_need.h"
#include "cli/verbs/verbs.h"
#include "hub/model_artifact.h"
#include "hub/towers.h"
#include "text/tokenizer.h"

namespace mantou::cli {
namespace {

using nlohmann::json;

json describe_tensors(const hub::ModelArtifact& artifact) {
  struct Sum {
    int count = 0;
    size_t bytes = 0;
  };
  std::map<std::string, Sum> by_type;
  Sum all;
  for (const auto& tensor : artifact.tensors()) {
    for (Sum* sum : {&by_type[tensor.type], &all}) {
      sum->count += 1;
      sum->bytes += tensor.bytes;
    }
  }
  json types = json::object();
  for (const auto& [type, sum] : by_type)
    types[type] = {{"count", sum.count}, {"bytes", sum.bytes}};
  return {{"count", all.count}, {"bytes", all.bytes}, {"types", types}};
}

// What a row costs in the cache: full layers grow with each token, sliding ones stop at their
// window.
json describe_cache(const MemoryNeed& need, const ModelOptions& options) {
  size_t growing = 0, all = 0;
  int64_t window = 0;
  int sliding_layers = 0;
  MemoryNeed one = need;
  for (const StateSpec& spec : need.states) {
    one.states = {spec};
    const size_t bytes = one.cache_bytes(1);
    all += bytes;
    growing += spec.window > 0 ? 0 : bytes;
    sliding_layers += spec.window > 0;
    window = std::max(window, spec.window);
  }
  return {{"layers", need.states.size()},
          {"type", kKvTypeNames[size_t(need.states[0].type)]},
          {"scheme", runtime::name_of(kv_scheme(options))},
          {"bytes_per_token", all},
          {"bytes_per_token_beyond_window", growing},
          {"sliding_layers", sliding_layers},
          {"window", window}};
}

// Of one conversation.
json describe_memory(const MemoryNeed& need, int64_t ctx_size) {
  const int64_t context = ctx_size > 0 ? ctx_size : need.train_context;
  const uint64_t cache = need.cache_bytes(context);
  return {{"context", context},
          {"weights", need.weights},
          {"cache", cache},
          {"total", need.weights + cache}};
}

json describe_tokenizer(const hub::ModelArtifact& artifact) try {
  const TokenizerSource& source = artifact.tokenizer();
  const auto tokenizer = text::Tokenizer::build(source);
  json ends = json::array();
  for (const auto id : tokenizer->end_ids())
    ends.push_back({{"id", id}, {"text", tokenizer->piece_of(id)}});
  json bos;
  if (tokenizer->bos() >= 0)
    bos = {{"id", tokenizer->bos()}, {"text", tokenizer->piece_of(tokenizer->bos())}};
  json templates = json::array();
  if (!source.chat_template.empty()) templates.push_back("default");
  for (const auto& [name, body] : source.named_templates) templates.push_back(name);
  return {{"kind", source.gguf ? fmt::format("{} / {}", source.gguf->model, source.gguf->pre)
                               : "tokenizer.json"},
          {"vocabulary", tokenizer->vocab_size()},
          {"bos", bos},
          {"end_of_answer", ends},
          {"chat_templates", templates}};
} catch (const Error& error) {  // the weights can be looked at without it
  return {{"problem", error.message()}};
}

// Loads the model without computing; why it would not load is part of the answer.
json describe_load(hub::ModelArtifact& artifact, const ModelOptions& options) {
  json out = {{"supported", true}};
  try {
    const MemoryNeed need = memory_need(artifact, options);
    out["cache"] = describe_cache(need, options);
    out["memory"] = describe_memory(need, options.ctx_size);
  } catch (const Error& error) {
    out["supported"] = false;
    out["problem"] = error.message();
  }
  out["unused"] = out["towers"] = json::array();
  for (const std::string& name : artifact.unused())
    out[hub::is_of_tower(name) ? "towers" : "unused"].push_back(name);
  return out;
}

std::string token_text(const json& token) {
  if (token.is_null()) return "none";
  return fmt::format("{} ({})", token["text"].get<std::string>(), token["id"].get<int>());
}

void print_cache(const json& cache) {
  const std::string type = cache["type"];
  fmt::print("cache      {} per token in {} layers ({})\n",
             human_bytes(cache["bytes_per_token"].get<double>()), cache["layers"].get<int>(),
             cache["scheme"] == "off"
                 ? type
                 : fmt::format("{} of {}", cache["scheme"].get<std::string>(), type));
  if (const int sliding = cache["sliding_layers"].get<int>(); sliding > 0)
    fmt::print("           beyond {} tokens {} per token: {} sliding\n",
               cache["window"].get<int64_t>(),
               human_bytes(cache["bytes_per_token_beyond_window"].get<double>()), sliding);
}

void print_memory(const json& memory) {
  fmt::print("memory     {} for weights and {} for the cache of {} tokens: {}\n",
             human_bytes(memory["weights"].get<double>()),
             human_bytes(memory["cache"].get<double>()), memory["context"].get<int64_t>(),
             human_bytes(memory["total"].get<double>()));
}

void print_tokenizer(const json& tokenizer) {
  fmt::print("\ntokenizer  {}, {} tokens\n  begins   {}\n", tokenizer["kind"].get<std::string>(),
             tokenizer["vocabulary"].get<int>(), token_text(tokenizer["bos"]));
  for (const json& end : tokenizer["end_of_answer"]) fmt::print("  ends     {}\n", token_text(end));
  for (const json& name : tokenizer["chat_templates"])
    fmt::print("  template {}\n", name.get<std::string>());
  if (tokenizer["chat_templates"].empty()) fmt::print("  template none: ChatML stands in\n");
}

void print_report(const json& report) {
  fmt::print("name       {}\npath       {} ({})\n", report["name"].get<std::string>(),
             report["path"].get<std::string>(), report["format"].get<std::string>());
  const json& load = report["load"];
  fmt::print("loads      {}\n",
             load["supported"].get<bool>() ? "yes" : "no: " + load["problem"].get<std::string>());
  if (load.contains("cache")) print_cache(load["cache"]);
  if (load.contains("memory")) print_memory(load["memory"]);
  if (const size_t towers = load["towers"].size(); towers > 0)
    fmt::print("left out   {} tensors for images or sound\n", towers);
  for (const json& name : load["unused"])
    if (load["supported"].get<bool>()) fmt::print("unused     {}\n", name.get<std::string>());

  const json& tensors = report["tensors"];
  fmt::print("\ntensors    {}, {}\n", tensors["count"].get<int>(),
             human_bytes(tensors["bytes"].get<double>()));
  for (const auto& [type, sum] : tensors["types"].items())
    fmt::print("  {:<9}{:>5}  {:>10}\n", type, sum["count"].get<int>(),
               human_bytes(sum["bytes"].get<double>()));

  const json& tokenizer = report["tokenizer"];
  if (tokenizer.contains("problem"))
    fmt::print("\ntokenizer  none: {}\n", tokenizer["problem"].get<std::string>());
  else
    print_tokenizer(tokenizer);

  fmt::print("\nconfiguration\n");
  for (const auto& [key, value] : report["config"].items())
    fmt::print("  {:<28} {}\n", key, value.dump());
}
}  // namespace

int run_inspect(const Options& options) {
  const auto artifact = hub::ModelArtifact::open(find_model(options.model));
  const json report = {
      {"name", artifact->name()},
      {"path", artifact->path().string()},
      {"format", format_name(artifact->format())},
      {"config", artifact->config()},
      {"generation_config", artifact->generation_config()},
      {"tensors", describe_tensors(*artifact)},
      {"load", describe_load(*artifact, options.model)},
      {"tokenizer", describe_tokenizer(*artifact)},
  };
  if (options.json)
    fmt::print("{}\n", to_text(report, 2));
  else
    print_report(report);
  return 0;
}

}  // namespace mantou::cli
