#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "cli/human.h"
#include "cli/inspection_backend.h"
#include "cli/verbs/verbs.h"
#include "hub/model_artifact.h"
#include "hub/resolve.h"
#include "models/registry.h"
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

// What a row costs in the cache as f16: full layers grow with each token, sliding ones stop at
// their window.
json describe_cache(const models::Model& model) {
  constexpr size_t kElement = 2;  // bytes
  size_t growing = 0, sliding = 0;
  int64_t window = 0;
  int layers = 0, sliding_layers = 0;
  for (const StateSpec& spec : model.state_specs(KvType::kF16)) {
    const size_t bytes = 2 * size_t(spec.kv_heads) * size_t(spec.head_dim) * kElement;
    (spec.window > 0 ? sliding : growing) += bytes;
    sliding_layers += spec.window > 0;
    window = std::max(window, spec.window);
    layers += 1;
  }
  return {{"layers", layers},
          {"bytes_per_token", growing + sliding},
          {"bytes_per_token_beyond_window", growing},
          {"sliding_layers", sliding_layers},
          {"window", window}};
}

json describe_tokenizer(const TokenizerSource& source) {
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
}

// Loads the model without computing; why it would not load is part of the answer.
json describe_load(hub::ModelArtifact& artifact) {
  json out = {{"supported", true}};
  try {
    const auto backend = make_inspection_backend();
    const auto model = models::load_model(artifact, *backend);
    out["cache"] = describe_cache(*model);
  } catch (const Error& error) {
    out["supported"] = false;
    out["problem"] = error.message();
  }
  out["unused"] = artifact.unused();
  return out;
}

std::string token_text(const json& token) {
  if (token.is_null()) return "none";
  return fmt::format("{} ({})", token["text"].get<std::string>(), token["id"].get<int>());
}

void print_cache(const json& cache) {
  fmt::print("cache      {} per token in {} layers (f16)\n",
             human_bytes(cache["bytes_per_token"].get<double>()), cache["layers"].get<int>());
  if (const int sliding = cache["sliding_layers"].get<int>(); sliding > 0)
    fmt::print("           beyond {} tokens {} per token: {} layers slide\n",
               cache["window"].get<int64_t>(),
               human_bytes(cache["bytes_per_token_beyond_window"].get<double>()), sliding);
}

void print_report(const json& report) {
  fmt::print("name       {}\npath       {} ({})\n", report["name"].get<std::string>(),
             report["path"].get<std::string>(), report["format"].get<std::string>());
  const json& load = report["load"];
  fmt::print("loads      {}\n",
             load["supported"].get<bool>() ? "yes" : "no: " + load["problem"].get<std::string>());
  if (load.contains("cache")) print_cache(load["cache"]);
  for (const json& name : load["unused"])
    if (load["supported"].get<bool>()) fmt::print("unused     {}\n", name.get<std::string>());

  const json& tensors = report["tensors"];
  fmt::print("\ntensors    {}, {}\n", tensors["count"].get<int>(),
             human_bytes(tensors["bytes"].get<double>()));
  for (const auto& [type, sum] : tensors["types"].items())
    fmt::print("  {:<9}{:>5}  {:>10}\n", type, sum["count"].get<int>(),
               human_bytes(sum["bytes"].get<double>()));

  const json& tokenizer = report["tokenizer"];
  fmt::print("\ntokenizer  {}, {} tokens\n  begins   {}\n", tokenizer["kind"].get<std::string>(),
             tokenizer["vocabulary"].get<int>(), token_text(tokenizer["bos"]));
  for (const json& end : tokenizer["end_of_answer"]) fmt::print("  ends     {}\n", token_text(end));
  for (const json& name : tokenizer["chat_templates"])
    fmt::print("  template {}\n", name.get<std::string>());
  if (tokenizer["chat_templates"].empty()) fmt::print("  template none: ChatML stands in\n");

  fmt::print("\nconfiguration\n");
  for (const auto& [key, value] : report["config"].items())
    fmt::print("  {:<28} {}\n", key, value.dump());
}

}  // namespace

int run_inspect(const Options& options) {
  const auto artifact = hub::ModelArtifact::open(hub::resolve_model(options.model.model));
  const json report = {
      {"name", artifact->name()},
      {"path", artifact->path().string()},
      {"format", format_name(artifact->format())},
      {"config", artifact->config()},
      {"generation_config", artifact->generation_config()},
      {"tensors", describe_tensors(*artifact)},
      {"load", describe_load(*artifact)},
      {"tokenizer", describe_tokenizer(artifact->tokenizer())},
  };
  if (options.json)
    fmt::print("{}\n", to_text(report, 2));
  else
    print_report(report);
  return 0;
}

}  // namespace mantou::cli
