#include "cli/verbs/verbs.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/nearest.h"

namespace mantou::cli {
namespace {

constexpr std::array kVerbs = {
    Verb{kServe, "serve", "Serve the protocols of OpenAI, Anthropic and llama-server.",
         Words::kModel, run_serve},
    Verb{kChat, "chat", "Talk in the terminal, to a model here or to another server's.",
         Words::kModel, run_chat},
    Verb{kGenerate, "generate", "Answer one prompt.", Words::kPrompt, run_generate},
    Verb{kBench, "bench", "Measure how fast a model reads and writes here.", Words::kModel,
         run_bench},
    Verb{kTokenize, "tokenize", "Turn text into token ids, or ids into text.", Words::kText,
         run_tokenize},
    Verb{kInspect, "inspect", "Show what a checkpoint holds and whether it would load.",
         Words::kModel, run_inspect},
    Verb{kFit, "fit", "Say which context fits into memory here, and estimate the speed.",
         Words::kModel, run_fit},
    Verb{kGet, "get", "Fetch a model of the Hugging Face hub.", Words::kRepository, run_get},
    Verb{kList, "ls", "List the models on this machine.", Words::kNone, run_ls},
    Verb{kGarbage, "gc", "Show (and with --yes remove) what no model of the cache uses.",
         Words::kNone, run_gc},
    Verb{kVersion, "version", "Show version, compiler and instruction set.", Words::kNone,
         run_version},
    Verb{kHelp, "help", "Explain a verb and its options.", Words::kVerb, run_help},
};

}  // namespace

std::span<const Verb> verbs() { return kVerbs; }

const Verb& find_verb(std::string_view name) {
  for (const Verb& verb : kVerbs)
    if (verb.name == name) return verb;
  std::vector<std::string> names;
  for (const Verb& verb : kVerbs) names.emplace_back(verb.name);
  std::string hint = did_you_mean(name, names);
  if (hint.empty()) hint = fmt::format("; verbs are {}", fmt::join(names, ", "));
  fail_param(ErrorCode::kInvalidArgument, std::string(name), "there is no verb \"{}\"{}", name,
             hint);
}

}  // namespace mantou::cli
