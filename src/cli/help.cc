#include <fmt/format.h>

#include <algorithm>

#include "cli/chat/commands.h"
#include "cli/flags.h"

namespace mantou::cli {
namespace {

constexpr size_t kWidth = 96;   // columns of the help
constexpr size_t kIndent = 34;  // where the explanations begin

struct GroupTitle {
  FlagGroup group;
  std::string_view title;
};
constexpr GroupTitle kGroups[] = {
    {FlagGroup::kModel, "Model and machine"},
    {FlagGroup::kPrompt, "Prompt"},
    {FlagGroup::kLimits, "Limits"},
    {FlagGroup::kSampling, "Sampling"},
    {FlagGroup::kRemote, "A server elsewhere"},
    {FlagGroup::kServer, "Server"},
    {FlagGroup::kBench, "Measurements"},
    {FlagGroup::kTokens, "Tokens"},
    {FlagGroup::kOutput, "Output"},
};

std::string_view words_usage(Words words) {
  switch (words) {
    case Words::kNone:
      return "";
    case Words::kModel:
      return " [MODEL]";
    case Words::kPrompt:
      return " [PROMPT …]";
    case Words::kText:
      return " [TEXT …]";
    case Words::kVerb:
      return " [VERB|models]";
    case Words::kRepository:
      return " REPO[:QUANT|:FILE]";
  }
  return "";
}

// What the flag is when nobody says anything; empty for switches.
std::string default_of(const Flag& flag) {
  if (flag.value.empty()) return "";
  if (!flag.default_text.empty()) return std::string(flag.default_text);
  Options options;
  struct Print {
    std::string operator()(const bool*) const { return ""; }
    std::string operator()(const int* v) const { return fmt::format("{}", *v); }
    std::string operator()(const int64_t* v) const { return fmt::format("{}", *v); }
    std::string operator()(const std::string* v) const { return *v; }
    std::string operator()(const Choice& v) const {
      return std::string(v.names[size_t(v.get(v.value))]);
    }
    std::string operator()(const std::vector<int>* v) const {
      return fmt::format("{}", fmt::join(*v, ","));
    }
    std::string operator()(const std::vector<std::string>*) const { return "none"; }
    std::string operator()(const std::optional<int>*) const { return "unset"; }
    std::string operator()(const std::optional<uint64_t>*) const { return "unset"; }
    std::string operator()(const std::optional<double>*) const { return "unset"; }
  };
  return std::visit(Print{}, flag.target(options));
}

// "auto, f32" or "0 to 65535"; empty when any value goes.
std::string allowed_of(const Flag& flag) {
  Options options;
  const Target target = flag.target(options);
  if (const auto* choice = std::get_if<Choice>(&target))
    return fmt::format("{}", fmt::join(choice->names, ", "));
  if (flag.low == 0 && flag.high == 0) return "";
  return fmt::format("{} to {}", flag.low, flag.high);
}

// "-c, --ctx-size N": the short names first.
std::string names_of(const Flag& flag) {
  std::vector<std::string> names;
  for (std::string_view alias : flag.aliases)
    if (!alias.starts_with("--")) names.emplace_back(alias);
  names.push_back(fmt::format("--{}", flag.name));
  std::string out = fmt::format("{}", fmt::join(names, ", "));
  if (!flag.value.empty()) return fmt::format("{} {}", out, flag.value);
  // A switch that has other values than true and false.
  Options options;
  const Target target = flag.target(options);
  if (const auto* const choice = std::get_if<Choice>(&target))
    for (size_t i = 2; i < choice->names.size(); i++) out += fmt::format("[={}]", choice->names[i]);
  return out;
}

std::vector<std::string_view> long_aliases(const Flag& flag) {
  std::vector<std::string_view> out;
  for (std::string_view alias : flag.aliases)
    if (alias.starts_with("--")) out.push_back(alias);
  return out;
}

// Columns of UTF-8 text: bytes that begin a character.
size_t columns(std::string_view text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// `text` in lines of at most kWidth columns, each but the first indented to kIndent.
std::string wrapped(std::string_view text) {
  std::string out;
  size_t column = kIndent;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    if (column > kIndent && column + 1 + columns(word) > kWidth) {
      out += fmt::format("\n{:{}}", "", kIndent);
      column = kIndent;
    } else if (column > kIndent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += columns(word);
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return out;
}

std::string explanation(const Flag& flag) {
  std::string text(flag.help);
  const std::string allowed = allowed_of(flag), standard = default_of(flag);
  std::vector<std::string> facts;
  if (!allowed.empty()) facts.push_back(allowed);
  if (!standard.empty()) facts.push_back(fmt::format("default: {}", standard));
  if (!facts.empty()) text += fmt::format(" ({})", fmt::join(facts, "; "));
  const auto also = long_aliases(flag);
  if (!also.empty()) text += fmt::format(" Also {}.", fmt::join(also, ", "));
  return text;
}

std::string help_line(const Flag& flag) {
  const std::string names = "  " + names_of(flag);
  const size_t width = columns(names);
  const std::string gap =
      width + 2 > kIndent ? fmt::format("\n{:{}}", "", kIndent) : std::string(kIndent - width, ' ');
  return names + gap + wrapped(explanation(flag)) + "\n";
}

std::string verbs_of(const Flag& flag, std::span<const Verb> verbs) {
  std::vector<std::string_view> names;
  for (const Verb& verb : verbs)
    if (flag.verbs & verb.bit) names.push_back(verb.name);
  return names.size() == verbs.size() ? "all" : fmt::format("{}", fmt::join(names, ", "));
}

// A cell of a Markdown table.
std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return text;
}

std::string markdown_row(const Flag& flag, std::span<const Verb> verbs) {
  std::string names = fmt::format("`{}`", names_of(flag));
  for (std::string_view alias : long_aliases(flag)) names += fmt::format(", `{}`", alias);
  const std::string variable =
      flag.name == "help" ? "" : fmt::format("`{}`", environment_name(flag.name));
  return fmt::format("| {} | {} | {} | {} | {} | {} |\n", names, cell(std::string(flag.help)),
                     cell(allowed_of(flag)), cell(default_of(flag)), variable,
                     verbs_of(flag, verbs));
}

}  // namespace

std::string help_overview(std::span<const Verb> verbs) {
  std::string out =
      "mantou runs large language models on this machine.\n\n"
      "Usage: mantou VERB [options]\n\n"
      "Verbs\n";
  for (const Verb& verb : verbs) out += fmt::format("  {:<11}{}\n", verb.name, verb.summary);
  out +=
      "\nWithout a verb, mantou serves. `mantou help VERB` explains a verb's options, `mantou\n"
      "help models` lists the models that run. Each option is also read from the environment:\n"
      "--ctx-size from MANTOU_CTX_SIZE. An option wins over the environment.\n\nVariables without "
      "an option\n";
  for (const auto& variable : environment_variables())
    out += fmt::format("  {:<{}}{}\n", variable.name, kIndent - 2, wrapped(variable.help));
  return out;
}

std::string help_verb(const Verb& verb) {
  std::string out = fmt::format("mantou {}: {}\n\nUsage: mantou {} [options]{}\n", verb.name,
                                verb.summary, verb.name, words_usage(verb.words));
  for (const GroupTitle& group : kGroups) {
    std::string lines;
    for (const Flag& flag : flags())
      if (flag.group == group.group && (flag.verbs & verb.bit)) lines += help_line(flag);
    if (!lines.empty()) out += fmt::format("\n{}\n{}", group.title, lines);
  }
  if (verb.bit == kChat) out += "\nTyped in a chat\n" + chat_commands_help();
  return out;
}

std::string help_markdown(std::span<const Verb> verbs) {
  std::string out =
      "# Command line\n\n"
      "Made from the flags table by `mantou help --markdown`; do not edit.\n\n"
      "| verb | what it does |\n|---|---|\n";
  for (const Verb& verb : verbs)
    out += fmt::format("| `mantou {}{}` | {} |\n", verb.name,
                       cell(std::string(words_usage(verb.words))), verb.summary);
  out +=
      "\nWithout a verb, mantou serves. An option wins over its environment variable, the "
      "variable\n"
      "over the default. Switches take no value on the command line; in the environment they are\n"
      "`1` or `0`.\n";
  for (const GroupTitle& group : kGroups) {
    std::string rows;
    for (const Flag& flag : flags())
      if (flag.group == group.group) rows += markdown_row(flag, verbs);
    out += fmt::format(
        "\n## {}\n\n| option | meaning | values | default | environment | verbs |\n"
        "|---|---|---|---|---|---|\n{}",
        group.title, rows);
  }
  out += "\n## In a chat\n\n```\n" + chat_commands_help() + "```\n";
  out += "\n## Variables without an option\n\n| variable | meaning |\n|---|---|\n";
  for (const auto& variable : environment_variables())
    out += fmt::format("| `{}` | {} |\n", variable.name, cell(std::string(variable.help)));
  return out;
}

}  // namespace mantou::cli
