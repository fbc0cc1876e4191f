// The flags table and everything that is made of it: the parser, the mirror in the environment,
// `--help` and docs/cli.md.
//
// A flag is one line of the table in flags_table.cc and its parts: its names, who takes it, what it
// means, where its value goes and which values are allowed. Nothing else in the program knows a
// flag's name. --ctx-size is mirrored by MANTOU_CTX_SIZE; the command line wins over the
// environment, the environment over the default. Pure functions over immutable tables: any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cli/options.h"

namespace mantou::cli {

// One bit a verb: a flag names the set of verbs that take it.
enum VerbBit : uint32_t {
  kGenerate = 1 << 0,
  kChat = 1 << 1,
  kServe = 1 << 2,
  kBench = 1 << 3,
  kTokenize = 1 << 4,
  kInspect = 1 << 5,
  kList = 1 << 6,
  kVersion = 1 << 7,
  kHelp = 1 << 8,
  kGet = 1 << 9,
  kGarbage = 1 << 10,
  kFit = 1 << 11,
};

// What words without a dash mean to a verb.
enum class Words { kNone, kModel, kPrompt, kText, kVerb, kRepository };

struct Verb {
  VerbBit bit;
  std::string_view name;
  std::string_view summary;  // one line
  Words words;
  int (*run)(const Options&);  // the exit code; throws Error
};

// An enum behind its table of names: values are 0 … n-1 in the order of the names.
struct Choice {
  void* value;
  void (*set)(void* value, int index);
  int (*get)(const void* value);
  std::span<const std::string_view> names;
};

// Where a flag's value goes; its type says how the text is read. A bool is a switch without a
// value; a vector of ints is a comma list; a vector of strings takes one each time the flag is
// given.
using Target = std::variant<bool*, int*, int64_t*, std::string*, Choice, std::vector<int>*,
                            std::vector<std::string>*, std::optional<int>*,
                            std::optional<uint64_t>*, std::optional<double>*>;

enum class FlagGroup {
  kModel,
  kPrompt,
  kLimits,
  kSampling,
  kRemote,
  kServer,
  kBench,
  kTokens,
  kOutput
};

struct Flag {
  std::string_view name;                       // without dashes: "ctx-size"
  std::vector<std::string_view> aliases = {};  // with dashes: "-c", "--context-length"
  uint32_t verbs;                              // set of VerbBit
  FlagGroup group;
  std::string_view value = {};         // placeholder in the help: "N"; empty for a switch
  std::string_view help;               // one or two sentences
  Target (*target)(Options&);          // where the value goes
  double low = 0, high = 0;            // allowed numbers; both 0: any
  std::string_view default_text = {};  // what the default means, where the value alone does not say
  bool json_object = false;            // the text must be a JSON object
};

std::span<const Flag> flags();

// A variable that no flag mirrors.
struct EnvironmentVariable {
  std::string_view name, help;
};
std::span<const EnvironmentVariable> environment_variables();

// The flag of `verb` that has this name, "--" before it or not, "_" as good as "-". Null: none.
const Flag* find_flag(const Verb& verb, std::string_view name);

// Reads `text` into the flag's place in `options`; with `first` a list begins anew. Errors name the
// flag as `shown`.
void set_flag(const Flag& flag, const std::string& shown, std::string_view text, Options& options,
              bool first = true);

// Looks a variable up; empty result: not set. main passes getenv, tests a map.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// "ctx-size" → "MANTOU_CTX_SIZE".
std::string environment_name(std::string_view flag);

// The options of `verb` from `args` (without program and verb names) and the environment.
// kInvalidArgument with the flag (or the variable) as param: unknown, with the nearest known one;
// without its value; not a number, or out of range, which is named.
Options parse(const Verb& verb, std::span<const std::string> args, const Environment& environment);

std::string help_overview(std::span<const Verb> verbs);  // mantou --help
std::string help_verb(const Verb& verb);                 // mantou help VERB
std::string help_markdown(std::span<const Verb> verbs);  // docs/cli.md

}  // namespace mantou::cli
