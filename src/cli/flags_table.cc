#include "cli/flags_table.h"

namespace mantou::cli {
namespace {

// Of bench, tokenize and what programs print.
std::vector<Flag> other_flags() {
  return {
      // Bench: the names of llama-bench.
      {.name = "n-prompt",
       .aliases = {"-p"},
       .verbs = kBench,
       .group = FlagGroup::kBench,
       .value = "N,…",
       .help = "Prompt lengths to measure; 0: none.",
       .target = FIELD(bench.prompt),
       .low = 0,
       .high = 1 << 20},
      {.name = "n-gen",
       .aliases = {"-n"},
       .verbs = kBench,
       .group = FlagGroup::kBench,
       .value = "N,…",
       .help = "Numbers of generated tokens to measure; 0: none.",
       .target = FIELD(bench.gen),
       .low = 0,
       .high = 1 << 20},
      {.name = "n-depth",
       .aliases = {"-d"},
       .verbs = kBench,
       .group = FlagGroup::kBench,
       .value = "N,…",
       .help = "Tokens already in the cache before the clock starts.",
       .target = FIELD(bench.depth),
       .low = 0,
       .high = 1 << 20},
      {.name = "threads",
       .aliases = {"-t"},
       .verbs = kBench,
       .group = FlagGroup::kBench,
       .value = "N,…",
       .help = "Numbers of threads to measure; 0: one a core.",
       .target = FIELD(bench.threads),
       .low = 0,
       .high = 1024,
       .default_text = "one a core"},
      {.name = "repetitions",
       .aliases = {"-r"},
       .verbs = kBench,
       .group = FlagGroup::kBench,
       .value = "N",
       .help = "Measurements of each combination.",
       .target = FIELD(bench.repetitions),
       .low = 1,
       .high = 1000},
      {.name = "output",
       .aliases = {"-o"},
       .verbs = kBench,
       .group = FlagGroup::kBench,
       .value = "FORMAT",
       .help = "Form of the table.",
       .target = CHOICE(bench.output)},
      // Tokens.
      {.name = "ids",
       .verbs = kTokenize,
       .group = FlagGroup::kTokens,
       .help = "The input is token ids (or a JSON array of them); print their text.",
       .target = FIELD(tokenize.ids)},
      {.name = "no-bos",
       .verbs = kTokenize,
       .group = FlagGroup::kTokens,
       .help = "Do not add the tokens that begin and end a text.",
       .target = FIELD(tokenize.no_bos)},
      {.name = "parse-special",
       .verbs = kTokenize,
       .group = FlagGroup::kTokens,
       .help = "Text that spells a special token becomes that token.",
       .target = FIELD(tokenize.parse_special)},
      // Output and reports.
      {.name = "stats",
       .verbs = kGenerate | kChat,
       .group = FlagGroup::kOutput,
       .help = "Print token counts and speeds to standard error at the end.",
       .target = FIELD(prompt.stats)},
      {.name = "json",
       .verbs = kTokenize | kInspect | kFit | kList,
       .group = FlagGroup::kOutput,
       .help = "Print JSON.",
       .target = FIELD(json)},
      {.name = "markdown",
       .verbs = kHelp,
       .group = FlagGroup::kOutput,
       .help = "Print the whole reference as Markdown.",
       .target = FIELD(markdown)},
      {.name = "log-level",
       .verbs = kRunning,
       .group = FlagGroup::kOutput,
       .value = "LEVEL",
       .help = "How much to log to standard error.",
       .target = CHOICE(log_level)},
      {.name = "log-format",
       .verbs = kRunning,
       .group = FlagGroup::kOutput,
       .value = "FORMAT",
       .help = "Form of log lines.",
       .target = CHOICE(log_format)},
      {.name = "help",
       .aliases = {"-h"},
       .verbs = ~uint32_t{0},
       .group = FlagGroup::kOutput,
       .help = "Print this help.",
       .target = FIELD(help)},
  };
}

std::vector<Flag> whole_table() {
  std::vector<Flag> all;
  for (const auto& part : {model_flags(), answer_flags(), serve_flags(), other_flags()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

constexpr EnvironmentVariable kVariables[] = {
    {"MANTOU_CACHE",
     "Folder for fetched models and caches; default: mantou in $XDG_CACHE_HOME or in ~/.cache."},
    {"MANTOU_CPU_ISA",
     "scalar, avx2 or avx512: the best instruction set to use. Results do not depend on it."},
    {"HF_HUB_CACHE, HF_HOME",
     "Where models of the Hugging Face cache are looked for and fetched to; default: "
     "~/.cache/huggingface/hub."},
    {"HF_TOKEN, HF_TOKEN_PATH",
     "The token for private and gated repositories, or the file that holds it; default: "
     "$HF_HOME/token."},
    {"HF_ENDPOINT", "The hub to fetch from; default: https://huggingface.co."},
    {"HF_HUB_OFFLINE", "1: the same as --offline."},
};

}  // namespace

std::span<const Flag> flags() {
  static const std::vector<Flag> table = whole_table();
  return table;
}

std::span<const EnvironmentVariable> environment_variables() { return kVariables; }

}  // namespace mantou::cli
