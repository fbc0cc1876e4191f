#include "cli/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "cli/help_models.h"
#include "cli/verbs/verbs.h"
#include "hub/gguf_names.h"

namespace mantou::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

constexpr uint32_t kAllVerbs = kGenerate | kChat | kServe | kBench | kTokenize | kInspect | kList |
                               kVersion | kHelp | kGet | kGarbage | kFit;

Options parse_line(std::string_view verb, const Strings& args, const Variables& variables = {}) {
  return parse(find_verb(verb), args, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

// The Error that the line must end in.
Error refused(std::string_view verb, const Strings& args, const Variables& variables = {}) {
  try {
    parse_line(verb, args, variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error;
  }
  ADD_FAILURE() << verb << " " << fmt::format("{}", fmt::join(args, " ")) << " was accepted";
  return {ErrorCode::kInternal, ""};
}

// ---- Each name of each flag: what the user types, and the field that must change.

struct Case {
  const char* verb;
  Strings args;
  bool (*holds)(const Options&);
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << fmt::format("{}", fmt::join(c.args, " "));
}

class EachFlag : public ::testing::TestWithParam<Case> {};

TEST_P(EachFlag, ReachesItsField) {
  const Case& c = GetParam();
  EXPECT_FALSE(c.holds(parse_line(c.verb, {}))) << "the default already holds";
  EXPECT_TRUE(c.holds(parse_line(c.verb, c.args)));
}

#define HOLDS(condition) [](const Options& o) { return condition; }
const Case kCases[] = {
    {"generate", {"-m", "smol"}, HOLDS(o.model.model == "smol")},
    {"inspect", {"--model", "smol"}, HOLDS(o.model.model == "smol")},
    {"inspect", {"smol"}, HOLDS(o.model.model == "smol")},
    {"fit", {"smol"}, HOLDS(o.model.model == "smol")},
    {"get", {"org/m:Q8_0"}, HOLDS(o.model.hf_repo == "org/m:Q8_0")},
    {"serve", {"-hf", "org/m"}, HOLDS(o.model.hf_repo == "org/m")},
    {"chat", {"-hfr", "org/m"}, HOLDS(o.model.hf_repo == "org/m")},
    {"get", {"--hf-repo", "org/m"}, HOLDS(o.model.hf_repo == "org/m")},
    {"serve", {"--offline"}, HOLDS(o.model.offline)},
    {"get", {"--dry-run"}, HOLDS(o.cache.dry_run)},
    {"gc", {"--yes"}, HOLDS(o.cache.yes)},
    {"gc", {"-y"}, HOLDS(o.cache.yes)},
    {"inspect", {"--ctx-size", "4096"}, HOLDS(o.model.ctx_size == 4096)},
    {"fit", {"--kv-type", "f32"}, HOLDS(o.model.kv_type == CacheType::kF32)},
    {"serve", {"-c", "4096"}, HOLDS(o.model.ctx_size == 4096)},
    {"serve", {"--ctx-size=4096"}, HOLDS(o.model.ctx_size == 4096)},
    {"serve", {"--ctx_size", "4096"}, HOLDS(o.model.ctx_size == 4096)},
    {"serve", {"--context-length", "4096"}, HOLDS(o.model.ctx_size == 4096)},
    {"chat", {"-t", "3"}, HOLDS(o.model.threads == 3)},
    {"chat", {"--threads", "3"}, HOLDS(o.model.threads == 3)},
    {"bench", {"-b", "64"}, HOLDS(o.model.batch_size == 64)},
    {"serve", {"--batch-size", "64"}, HOLDS(o.model.batch_size == 64)},
    {"serve", {"--prefill-step-size", "64"}, HOLDS(o.model.batch_size == 64)},
    {"bench", {"--compute", "f32"}, HOLDS(o.model.compute == Compute::kF32)},
    {"bench", {"-ctk", "bf16"}, HOLDS(o.model.kv_type == CacheType::kBF16)},
    {"serve", {"--cache-type-k", "f32"}, HOLDS(o.model.kv_type == CacheType::kF32)},
    {"serve", {"--kv-type", "F32"}, HOLDS(o.model.kv_type == CacheType::kF32)},
    {"serve", {"--backend", "mlx"}, HOLDS(o.model.backend == BackendChoice::kMlx)},
    {"generate", {"--exact", "x"}, HOLDS(o.model.exact == Exact::kYes && o.prompt.prompt == "x")},
    {"serve", {"--exact=mixed"}, HOLDS(o.model.exact == Exact::kMixed)},
    {"serve", {"--exact=1"}, HOLDS(o.model.exact == Exact::kYes)},
    {"chat", {"--kv-quant", "8"}, HOLDS(o.model.kv_quant == CacheQuant::k8)},
    {"fit", {"--kv-quant", "config"}, HOLDS(o.model.kv_quant == CacheQuant::kConfig)},
    {"bench", {"--kv-bits", "4"}, HOLDS(o.model.kv_quant == CacheQuant::k4)},
    {"chat", {"--kv-group-size", "32"}, HOLDS(o.model.kv_group_size == 32)},
    {"inspect", {"--quantized-kv-start", "9"}, HOLDS(o.model.quantized_kv_start == 9)},
    {"inspect", {"--kv-start", "9"}, HOLDS(o.model.quantized_kv_start == 9)},
    {"chat", {"--url", "http://h", "--model", "m"}, HOLDS(o.remote.url == "http://h")},
    {"chat", {"--url", "h", "--api-key", "k"}, HOLDS(o.remote.api_key == "k")},
    {"chat", {"--reasoning-parser", "none"}, HOLDS(o.prompt.reasoning_format == "none")},
    {"chat", {"-p", "Hello"}, HOLDS(o.prompt.prompt == "Hello")},
    {"generate", {"--prompt", "-5 degrees"}, HOLDS(o.prompt.prompt == "-5 degrees")},
    {"generate", {"--prompt=--stats"}, HOLDS(o.prompt.prompt == "--stats")},
    {"generate", {"Hello", "there"}, HOLDS(o.prompt.prompt == "Hello there")},
    {"generate", {"--", "--stats", "-p"}, HOLDS(o.prompt.prompt == "--stats -p")},
    {"chat", {"-sys", "Be brief."}, HOLDS(o.prompt.system == "Be brief.")},
    {"chat", {"--system", "Be brief."}, HOLDS(o.prompt.system == "Be brief.")},
    {"chat", {"--system-prompt", "Be brief."}, HOLDS(o.prompt.system == "Be brief.")},
    {"generate", {"--raw"}, HOLDS(o.prompt.raw)},
    {"generate", {"--raw=yes"}, HOLDS(o.prompt.raw)},
    {"generate", {"--ignore-chat-template"}, HOLDS(o.prompt.raw)},
    {"serve",
     {"--chat-template-kwargs", R"({"a": 1})"},
     HOLDS(o.prompt.chat_template_kwargs == R"({"a": 1})")},
    {"chat", {"--chat-template-args", "{}"}, HOLDS(o.prompt.chat_template_kwargs == "{}")},
    {"chat", {"--chat-template-config", "{}"}, HOLDS(o.prompt.chat_template_kwargs == "{}")},
    {"chat", {"-n", "9"}, HOLDS(o.limits.max_tokens == 9)},
    {"chat", {"--max-tokens", "-1"}, HOLDS(o.limits.max_tokens == -1)},
    {"chat", {"--n-predict", "9"}, HOLDS(o.limits.max_tokens == 9)},
    {"chat", {"--predict", "9"}, HOLDS(o.limits.max_tokens == 9)},
    {"chat", {"--min-tokens", "9"}, HOLDS(o.limits.min_tokens == 9)},
    {"chat", {"--ignore-eos"}, HOLDS(o.limits.ignore_eos)},
    {"chat", {"--stop", "a", "--stop", "b,c"}, HOLDS((o.limits.stop == Strings{"a", "b,c"}))},
    {"chat", {"--temp", "0"}, HOLDS(o.sampling.temperature == 0.0)},
    {"chat", {"--temperature", "1.25"}, HOLDS(o.sampling.temperature == 1.25)},
    {"chat", {"--top-p", ".5"}, HOLDS(o.sampling.top_p == 0.5)},
    {"chat", {"--top-k", "40"}, HOLDS(o.sampling.top_k == 40)},
    {"chat", {"--min-p", "5e-2"}, HOLDS(o.sampling.min_p == 0.05)},
    {"chat", {"--xtc-probability", "0.5"}, HOLDS(o.sampling.xtc_probability == 0.5)},
    {"chat", {"--xtc-threshold", "0.25"}, HOLDS(o.sampling.xtc_threshold == 0.25)},
    {"chat", {"--repeat-penalty", "1.1"}, HOLDS(o.sampling.repeat_penalty == 1.1)},
    {"chat", {"--repetition-penalty", "1.1"}, HOLDS(o.sampling.repeat_penalty == 1.1)},
    {"chat", {"--repetition-context-size", "64"}, HOLDS(o.sampling.repetition_context_size == 64)},
    {"chat", {"--repeat-last-n", "64"}, HOLDS(o.sampling.repeat_last_n == 64)},
    {"chat", {"--presence-penalty", "-2"}, HOLDS(o.sampling.presence_penalty == -2)},
    {"chat", {"--frequency-penalty", "2"}, HOLDS(o.sampling.frequency_penalty == 2)},
    {"chat", {"-s", "7"}, HOLDS(o.sampling.seed == 7)},
    {"chat", {"--seed", "18446744073709551615"}, HOLDS(o.sampling.seed == UINT64_MAX)},
    {"serve", {"--host", "::1"}, HOLDS(o.server.host == "::1")},
    {"serve", {"--port", "0"}, HOLDS(o.server.port == 0)},
    {"serve", {"-np", "3"}, HOLDS(o.model.parallel == 3)},
    {"serve", {"--parallel", "4"}, HOLDS(o.model.parallel == 4)},
    {"serve", {"--batch", "5"}, HOLDS(o.model.parallel == 5)},
    {"serve", {"-cram", "9"}, HOLDS(o.model.cache_ram == 9)},
    {"serve", {"--queue", "5"}, HOLDS(o.server.queue == 5)},
    {"serve", {"--kv-memory", "100"}, HOLDS(o.server.kv_memory == 100)},
    {"chat", {"--cache-ram", "0"}, HOLDS(o.model.cache_ram == 0)},
    {"serve", {"--tool-call-parser", "hermes"}, HOLDS(o.server.tool_format == "hermes")},
    {"serve", {"--reasoning-parser", "none"}, HOLDS(o.prompt.reasoning_format == "none")},
    {"serve", {"--body-limit", "8"}, HOLDS(o.server.body_limit == 8)},
    {"serve",
     {"--api-key", "a", "--api-key", "b,c"},
     HOLDS((o.server.api_keys == Strings{"a", "b,c"}))},
    {"serve", {"--api-key-file", "keys"}, HOLDS(o.server.api_key_file == "keys")},
    {"serve", {"--ssl-cert-file", "c.pem"}, HOLDS(o.server.ssl_cert_file == "c.pem")},
    {"serve", {"--ssl-key-file", "k.pem"}, HOLDS(o.server.ssl_key_file == "k.pem")},
    {"serve", {"--timeout", "7"}, HOLDS(o.server.timeout == 7)},
    {"serve", {"-to", "7"}, HOLDS(o.server.timeout == 7)},
    {"serve", {"--timeout-keep-alive", "7"}, HOLDS(o.server.keep_alive_timeout == 7)},
    {"serve", {"--timeout-graceful-shutdown", "7"}, HOLDS(o.server.shutdown_timeout == 7)},
    {"serve", {"--max-connections", "7"}, HOLDS(o.server.max_connections == 7)},
    {"serve", {"--allowed-hosts", "box"}, HOLDS((o.server.allowed_hosts == Strings{"box"}))},
    {"serve", {"--allowed-origins", "*"}, HOLDS((o.server.cors_origins == Strings{"*"}))},
    {"serve",
     {"--cors-origin", "http://a", "--cors-origin=http://b"},
     HOLDS((o.server.cors_origins == Strings{"http://a", "http://b"}))},
    {"bench", {"-p", "128,256"}, HOLDS((o.bench.prompt == std::vector{128, 256}))},
    {"bench", {"--n-prompt", "0"}, HOLDS((o.bench.prompt == std::vector{0}))},
    {"bench", {"-n", "8", "-n", "16"}, HOLDS((o.bench.gen == std::vector{8, 16}))},
    {"bench", {"--n-gen", "8"}, HOLDS((o.bench.gen == std::vector{8}))},
    {"bench", {"-d", "0,512"}, HOLDS((o.bench.depth == std::vector{0, 512}))},
    {"bench", {"--n-depth", "512"}, HOLDS((o.bench.depth == std::vector{512}))},
    {"bench", {"-t", "1,2"}, HOLDS((o.bench.threads == std::vector{1, 2}))},
    {"bench", {"--threads", "1"}, HOLDS((o.bench.threads == std::vector{1}))},
    {"bench", {"-r", "3"}, HOLDS(o.bench.repetitions == 3)},
    {"bench", {"--repetitions", "3"}, HOLDS(o.bench.repetitions == 3)},
    {"bench", {"-o", "json"}, HOLDS(o.bench.output == TableFormat::kJson)},
    {"bench", {"--output", "csv"}, HOLDS(o.bench.output == TableFormat::kCsv)},
    {"chat", {"--stats"}, HOLDS(o.prompt.stats)},
    {"tokenize", {"--ids"}, HOLDS(o.tokenize.ids)},
    {"tokenize", {"--no-bos"}, HOLDS(o.tokenize.no_bos)},
    {"tokenize", {"--parse-special"}, HOLDS(o.tokenize.parse_special)},
    {"tokenize", {"Hello", "you"}, HOLDS(o.tokenize.text == "Hello you")},
    {"ls", {"--json"}, HOLDS(o.json)},
    {"help", {"--markdown"}, HOLDS(o.markdown)},
    {"help", {"serve"}, HOLDS(o.topic == "serve")},
    {"serve", {"--log-level", "DEBUG"}, HOLDS(o.log_level == LogLevel::kDebug)},
    {"serve", {"--log-format", "json"}, HOLDS(o.log_format == LogFormat::kJson)},
    {"version", {"-h"}, HOLDS(o.help)},
    {"version", {"--help"}, HOLDS(o.help)},
};
#undef HOLDS
INSTANTIATE_TEST_SUITE_P(Flags, EachFlag, ::testing::ValuesIn(kCases));

TEST(Flags, EveryNameHasACase) {
  std::set<std::pair<std::string, std::string>> covered;  // verb, name
  for (const Case& c : kCases)
    for (const std::string& arg : c.args) covered.insert({c.verb, arg.substr(0, arg.find('='))});
  for (const Flag& flag : flags()) {
    Strings names(flag.aliases.begin(), flag.aliases.end());
    names.push_back(fmt::format("--{}", flag.name));
    for (const std::string& name : names) {
      bool found = false;
      for (const Verb& verb : verbs())
        found |= (flag.verbs & verb.bit) && covered.contains({std::string(verb.name), name});
      EXPECT_TRUE(found) << name;
    }
  }
}

// ---- The table.

TEST(Flags, NamesAreUniqueWithinAVerbAndEachFlagHasOne) {
  for (const Verb& verb : verbs()) {
    std::set<std::string> names;
    for (const Flag& flag : flags()) {
      EXPECT_NE(flag.verbs & kAllVerbs, 0u) << flag.name;
      if (!(flag.verbs & verb.bit)) continue;
      EXPECT_TRUE(names.insert(fmt::format("--{}", flag.name)).second) << flag.name;
      for (const auto alias : flag.aliases) EXPECT_TRUE(names.emplace(alias).second) << alias;
    }
  }
}

TEST(Flags, OneVerbABitAndNoneForgotten) {
  uint32_t seen = 0;
  for (const Verb& verb : verbs()) {
    EXPECT_EQ(seen & verb.bit, 0u) << verb.name;
    EXPECT_NE(verb.run, nullptr) << verb.name;
    seen |= verb.bit;
  }
  EXPECT_EQ(seen, kAllVerbs);
}

// ---- Sources and their order.

TEST(Flags, NothingGivenLeavesTheDefaults) {
  const Options options = parse_line("serve", {});
  EXPECT_EQ(options.server.host, "127.0.0.1");
  EXPECT_EQ(options.server.port, 8080);
  EXPECT_FALSE(options.sampling.temperature);
  EXPECT_FALSE(options.limits.max_tokens);
}

TEST(Flags, EnvironmentReplacesDefaultAndFlagReplacesEnvironment) {
  const Variables variables = {{"MANTOU_CTX_SIZE", "1024"},
                               {"MANTOU_TEMP", "0.5"},
                               {"MANTOU_IGNORE_EOS", "1"},
                               {"MANTOU_STOP", "from environment"},
                               {"MANTOU_KV_TYPE", "f32"}};
  const Options from_environment = parse_line("serve", {}, variables);
  EXPECT_EQ(from_environment.model.ctx_size, 1024);
  EXPECT_EQ(from_environment.sampling.temperature, 0.5);
  EXPECT_TRUE(from_environment.limits.ignore_eos);
  EXPECT_THAT(from_environment.limits.stop, ElementsAre("from environment"));
  EXPECT_EQ(from_environment.model.kv_type, CacheType::kF32);

  const Options from_flags = parse_line("serve",
                                        {"-c", "2048", "--temperature", "0", "--ignore-eos=off",
                                         "--stop", "x", "--stop", "y", "-ctk", "bf16"},
                                        variables);
  EXPECT_EQ(from_flags.model.ctx_size, 2048);
  EXPECT_EQ(from_flags.sampling.temperature, 0.0);
  EXPECT_FALSE(from_flags.limits.ignore_eos);
  EXPECT_THAT(from_flags.limits.stop, ElementsAre("x", "y"));
  EXPECT_EQ(from_flags.model.kv_type, CacheType::kBF16);
}

TEST(Flags, VariablesOfOtherVerbsAreNotRead) {
  EXPECT_EQ(parse_line("generate", {}, {{"MANTOU_PORT", "no number"}}).server.port, 8080);
}

TEST(Flags, ThreadsOfTheEnvironmentReachBothForms) {
  const Variables variables = {{"MANTOU_THREADS", "2"}};
  EXPECT_EQ(parse_line("serve", {}, variables).model.threads, 2);
  EXPECT_THAT(parse_line("bench", {}, variables).bench.threads, ElementsAre(2));
}

TEST(Flags, LaterValueWins) {
  EXPECT_EQ(parse_line("serve", {"--port", "1", "--port", "2"}).server.port, 2);
}

TEST(Flags, SeedMinusOneIsNoSeed) {
  EXPECT_FALSE(parse_line("chat", {"--seed", "-1"}, {{"MANTOU_SEED", "4"}}).sampling.seed);
}

TEST(Flags, GivenValuesReplaceTheEnginesAndOthersStay) {
  SamplingParams params;
  params.temperature = 0.6;
  params.top_k = 64;
  const Options options =
      parse_line("chat", {"--top-k", "5", "--repeat-penalty", "1.2", "--repetition-context-size",
                          "0", "-n", "7", "--min-tokens", "3", "--seed", "11"});
  apply(options.sampling, params);
  EXPECT_EQ(params.temperature, 0.6);
  EXPECT_EQ(params.top_k, 5);
  EXPECT_EQ(params.repetition_penalty, 1.2);
  EXPECT_EQ(params.repetition_context, 0);
  apply(parse_line("chat", {"--repeat-last-n", "-1"}).sampling, params);
  EXPECT_EQ(params.repetition_context, 0);
  EXPECT_EQ(params.repetition_penalty, 1.2);
  apply(parse_line("chat", {"--repeat-last-n", "0"}).sampling, params);
  EXPECT_EQ(params.repetition_penalty, 0);
  EXPECT_EQ(params.seed, 11u);
  Limits limits;
  apply(options.limits, limits);
  EXPECT_EQ(limits.max_tokens, 7);
  EXPECT_EQ(limits.min_tokens, 3);
  EXPECT_FALSE(limits.ignore_eos);
}

// ---- Refusals: one line that names the flag and what to do.

TEST(Refusals, UnknownFlagSuggestsTheNearest) {
  const Error error = refused("chat", {"--temprature", "1"});
  EXPECT_EQ(error.param(), "--temprature");
  EXPECT_EQ(error.message(), "--temprature is no option of chat; did you mean --temperature?");
}

TEST(Refusals, FlagOfAnotherVerbIsNamed) {
  EXPECT_EQ(refused("generate", {"--port", "1"}).message(),
            "--port is no option of generate; serve has it");
}

TEST(Refusals, UnknownVerbSuggestsTheNearest) {
  try {
    find_verb("sevre");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.message(), "there is no verb \"sevre\"; did you mean serve?");
  }
}

TEST(Refusals, AServerElsewhereIsNotToldHowToRun) {
  EXPECT_EQ(refused("chat", {"--url", "http://h", "--ctx-size", "9"}).message(),
            "--ctx-size is about a model that is loaded here: leave it out, or leave out --url");
  EXPECT_EQ(refused("chat", {"--api-key", "k"}).message(),
            "--api-key is for the server of --url: add --url");
}

TEST(Refusals, AnAnswerCannotBeLongerThanItMay) {
  for (const char* verb : {"serve", "chat", "generate"}) {
    const Error error = refused(verb, {"--min-tokens", "9", "-n", "8"});
    EXPECT_EQ(error.param(), "--min-tokens");
    EXPECT_EQ(error.message(),
              "--min-tokens (9) is more than --max-tokens (8): no answer could be that long");
  }
  EXPECT_THAT(refused("serve", {"-n", "8"}, {{"MANTOU_MIN_TOKENS", "9"}}).message(),
              HasSubstr("--max-tokens (8)"));
  EXPECT_EQ(parse_line("serve", {"--min-tokens", "9", "-n", "9"}).limits.min_tokens, 9);
  EXPECT_EQ(parse_line("serve", {"--min-tokens", "9", "-n", "-1"}).limits.min_tokens, 9);
}

TEST(Refusals, OutOfRangeNamesFlagAndRange) {
  const Error error = refused("serve", {"--port", "65536"});
  EXPECT_EQ(error.param(), "--port");
  EXPECT_EQ(error.message(), "--port: \"65536\" is out of range: 0 to 65535");
  EXPECT_THAT(refused("chat", {"--temp", "-0.1"}).message(), HasSubstr("0 to 5"));
  EXPECT_THAT(refused("chat", {"--top-p", "1.01"}).message(), HasSubstr("0 to 1"));
  EXPECT_THAT(refused("bench", {"-r", "0"}).message(), HasSubstr("1 to 1000"));
  EXPECT_THAT(refused("bench", {"-t", "1,1025"}).message(), HasSubstr("0 to 1024"));
}

TEST(Refusals, TextThatIsNoNumber) {
  for (const char* text : {"", "x", "1x", "1.5", " 1", "0x10", "99999999999999999999"})
    EXPECT_THAT(refused("serve", {"--port", text}).message(), HasSubstr("is not a whole number"));
  for (const char* text : {"", "x", "1,5", "nan", "inf"})
    EXPECT_THAT(refused("chat", {"--temp", text}).message(), HasSubstr("is not a number"));
  for (const char* text : {"", ",", "1,", "1,,2"})
    EXPECT_THAT(refused("bench", {"-p", text}).message(), HasSubstr("is not a whole number"));
}

TEST(Refusals, VariableIsNamedAsSuch) {
  const Error error = refused("serve", {}, {{"MANTOU_PORT", "high"}});
  EXPECT_EQ(error.param(), "MANTOU_PORT");
  EXPECT_THAT(error.message(), HasSubstr("MANTOU_PORT: \"high\""));
}

TEST(Refusals, MissingValue) {
  EXPECT_THAT(refused("serve", {"--port"}).message(), HasSubstr("--port needs a value"));
  EXPECT_THAT(refused("generate", {"-p", "--stats"}).message(), HasSubstr("-p needs a value"));
}

TEST(Refusals, ValuesThatAreNoChoice) {
  EXPECT_THAT(refused("serve", {"--kv-type", "q8"}).message(),
              HasSubstr("is none of auto, f16, bf16, f32"));
  EXPECT_THAT(refused("chat", {"--stats=maybe"}).message(), HasSubstr("neither true nor false"));
  EXPECT_THAT(refused("chat", {"--stop", ""}).message(), HasSubstr("is empty"));
  for (const char* text : {"", "{", "[]", "1"})
    EXPECT_THAT(refused("chat", {"--chat-template-kwargs", text}).message(),
                HasSubstr("is not a JSON object"));
}

TEST(Refusals, WordsThatTheVerbDoesNotTake) {
  EXPECT_THAT(refused("ls", {"smol"}).message(), HasSubstr("takes no word"));
  EXPECT_THAT(refused("serve", {"a", "b"}).message(), HasSubstr("\"b\" is one too many"));
}

// ---- Help.

TEST(Help, NamesEachFlagOfTheVerbAndNoOther) {
  for (const Verb& verb : verbs()) {
    const std::string help = help_verb(verb);
    for (const Flag& flag : flags()) {
      const std::string name = fmt::format("--{}", flag.name);
      const size_t at = help.find("\n  " + name), after_short = help.find(", " + name + " ");
      const bool named = at != std::string::npos || after_short != std::string::npos;
      EXPECT_EQ(named, find_flag(verb, flag.name) != nullptr) << verb.name << " " << name;
    }
  }
}

TEST(Help, LinesFitATerminal) {
  for (const Verb& verb : verbs()) {
    std::istringstream lines(help_verb(verb));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST(Help, ShowsRangesDefaultsAndOtherNames) {
  std::istringstream words(help_verb(find_verb("serve")));  // lines are wrapped anywhere
  std::string help;
  for (std::string word; words >> word;) help += word + " ";
  EXPECT_THAT(help, HasSubstr("(0 to 65535; default: 8080)"));
  EXPECT_THAT(help, HasSubstr("auto, f16, bf16, f32; default: auto"));
  EXPECT_THAT(help, HasSubstr("--repetition-penalty"));
}

TEST(Help, OverviewListsTheVerbs) {
  const std::string help = help_overview(verbs());
  for (const Verb& verb : verbs()) EXPECT_THAT(help, HasSubstr(verb.summary));
  EXPECT_THAT(help, HasSubstr("MANTOU_CACHE"));
}

void expect_current(const std::string& name, const std::string& text, const char* command) {
  const auto path = std::filesystem::path(MANTOU_SOURCE_DIR) / "docs" / name;
  std::istringstream page(read_file(path)), made(text);
  for (std::string old_line, line; std::getline(made, line);) {
    ASSERT_TRUE(std::getline(page, old_line)) << "the page ends before: " << line;
    ASSERT_EQ(old_line, line) << "write it again: " << command << " > docs/" << name;
  }
  EXPECT_EQ(page.peek(), std::istringstream::traits_type::eof()) << "the page has more lines";
}

TEST(Help, ReferencePagesAreCurrent) {
  expect_current("cli.md", help_markdown(verbs()), "mantou help --markdown");
  expect_current("models.md", help_models_markdown(), "mantou help models --markdown");
}

// Every architecture that GGUF files may have is of a family that loads.
TEST(Help, ModelsListEveryGgufArchitecture) {
  const std::string page = help_models_markdown();
  for (const hub::GgufArchitecture& known : hub::gguf_architectures())
    EXPECT_THAT(page, HasSubstr(fmt::format("| `{}` | `{}` |", known.model_type, known.name)));
}

}  // namespace
}  // namespace mantou::cli
