#include "cli/flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "base/error.h"
#include "base/nearest.h"
#include "cli/verbs/verbs.h"

namespace mantou::cli {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

// One value on its way into its target. `shown` is how the user named the flag, for messages.
struct Given {
  const Flag& flag;
  const std::string& shown;  // "--port", "MANTOU_PORT"
  std::string_view text;
  bool first;  // the first of its source: a list begins anew
};

[[noreturn]] void refuse(const Given& given, std::string_view why) {
  fail_param(ErrorCode::kInvalidArgument, given.shown, "{}: \"{}\" {}", given.shown, given.text,
             why);
}

template <class T>
T number(const Given& given, std::string_view text) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty())
    refuse(given, std::is_floating_point_v<T> ? "is not a number" : "is not a whole number");
  const Flag& flag = given.flag;
  if constexpr (std::is_floating_point_v<T>)
    if (!std::isfinite(value)) refuse(given, "is not a number");
  if ((flag.low != 0 || flag.high != 0) && (double(value) < flag.low || double(value) > flag.high))
    refuse(given, fmt::format("is out of range: {} to {}", flag.low, flag.high));
  return value;
}

std::optional<bool> truth_of(std::string_view text) {
  if (text == "1" || text == "true" || text == "on" || text == "yes") return true;
  if (text == "0" || text == "false" || text == "off" || text == "no") return false;
  return std::nullopt;
}

bool truth(const Given& given) {
  if (const auto value = truth_of(lower(given.text))) return *value;
  refuse(given, "is neither true nor false");
}

void choose(const Given& given, const Choice& choice) {
  const std::string text = lower(given.text);
  for (size_t i = 0; i < choice.names.size(); ++i)
    if (text == choice.names[i]) return choice.set(choice.value, int(i));
  // A switch that has other values than true and false.
  if (const auto value = truth_of(text); value && given.flag.value.empty())
    return choice.set(choice.value, int{*value});
  refuse(given, fmt::format("is none of {}", fmt::join(choice.names, ", ")));
}

void check_json(const Given& given) {
  const auto json = nlohmann::json::parse(given.text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) refuse(given, "is not a JSON object");
}

void list(const Given& given, std::vector<int>& values) {
  std::vector<int> read;
  for (size_t begin = 0; begin <= given.text.size();) {
    const size_t end = std::min(given.text.find(',', begin), given.text.size());
    read.push_back(number<int>(given, given.text.substr(begin, end - begin)));
    begin = end + 1;
  }
  if (given.first) values.clear();
  values.insert(values.end(), read.begin(), read.end());
}

void store(const Given& given, Options& options) {
  std::visit(Overloaded{
                 [&](bool* v) { *v = truth(given); },
                 [&](int* v) { *v = number<int>(given, given.text); },
                 [&](int64_t* v) { *v = number<int64_t>(given, given.text); },
                 [&](std::string* v) {
                   if (given.flag.json_object) check_json(given);
                   *v = given.text;
                 },
                 [&](const Choice& v) { choose(given, v); },
                 [&](std::vector<int>* v) { list(given, *v); },
                 [&](std::vector<std::string>* v) {
                   if (given.text.empty()) refuse(given, "is empty");
                   if (given.first) v->clear();
                   v->emplace_back(given.text);
                 },
                 [&](std::optional<int>* v) { *v = number<int>(given, given.text); },
                 [&](std::optional<uint64_t>* v) {
                   if (given.text == "-1")
                     v->reset();
                   else
                     *v = number<uint64_t>(given, given.text);
                 },
                 [&](std::optional<double>* v) { *v = number<double>(given, given.text); },
             },
             given.flag.target(options));
}

// "--ctx_size" and "--ctx-size" are the same name.
std::string canonical(std::string_view name) {
  std::string out(name);
  if (out.starts_with("--")) std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

bool has_name(const Flag& flag, std::string_view name) {
  if (name.starts_with("--") && name.substr(2) == flag.name) return true;
  return std::find(flag.aliases.begin(), flag.aliases.end(), name) != flag.aliases.end();
}

const Flag* find(const Verb& verb, std::string_view name) {
  for (const Flag& flag : flags())
    if ((flag.verbs & verb.bit) && has_name(flag, name)) return &flag;
  return nullptr;
}

// Why `name` is no option of `verb`, as the end of a message.
std::string explain_unknown(const Verb& verb, const std::string& name) {
  for (const Verb& other : verbs())
    if (find(other, name)) return fmt::format("; {} has it", other.name);
  std::vector<std::string> names;
  for (const Flag& flag : flags()) {
    if (!(flag.verbs & verb.bit)) continue;
    names.push_back(fmt::format("--{}", flag.name));
    for (std::string_view alias : flag.aliases)
      if (alias.starts_with("--")) names.emplace_back(alias);
  }
  const std::string hint = did_you_mean(name, names);
  return hint.empty() ? fmt::format("; see `mantou help {}`", verb.name) : hint;
}

void read_environment(const Verb& verb, const Environment& environment, Options& options) {
  for (const Flag& flag : flags()) {
    if (!(flag.verbs & verb.bit) || flag.name == "help") continue;
    const std::string name = environment_name(flag.name);
    if (const auto text = environment(name)) store({flag, name, *text, true}, options);
  }
}

// Puts the words that are no flags where the verb wants them.
void take_words(const Verb& verb, const std::vector<std::string>& words, Options& options) {
  if (words.empty()) return;
  const auto single = [&](std::string& value) {
    if (words.size() > 1)
      fail_param(ErrorCode::kInvalidArgument, words[1], "{} takes one word, \"{}\" is one too many",
                 verb.name, words[1]);
    value = words[0];
  };
  switch (verb.words) {
    case Words::kNone:
      fail_param(ErrorCode::kInvalidArgument, words[0], "{} takes no word such as \"{}\"",
                 verb.name, words[0]);
    case Words::kModel:
      return single(options.model.model);
    case Words::kRepository:
      return single(options.model.hf_repo);
    case Words::kVerb:
      return single(options.topic);
    case Words::kPrompt:
      options.prompt.prompt = fmt::format("{}", fmt::join(words, " "));
      return;
    case Words::kText:
      options.tokenize.text = fmt::format("{}", fmt::join(words, " "));
      return;
  }
}

// Reads one command line into an Options.
class Parser {
 public:
  Parser(const Verb& verb, std::span<const std::string> args, Options& options)
      : verb_(verb), args_(args), options_(options) {}

  void run() {
    while (next_ < args_.size()) {
      const std::string& arg = args_[next_++];
      if (arg == "--") {
        words_.insert(words_.end(), args_.begin() + long(next_), args_.end());
        break;
      }
      if (arg.size() < 2 || arg[0] != '-')
        words_.push_back(arg);
      else
        read_flag(arg);
    }
    take_words(verb_, words_, options_);
    check_remote();
    check_limits();
  }

 private:
  // A model elsewhere cannot be told how to run, and without one nobody wants its key.
  void check_remote() const {
    const bool remote = !options_.remote.url.empty();
    for (const Flag* flag : seen_) {
      const std::string name = fmt::format("--{}", flag->name);
      if (remote && flag->group == FlagGroup::kModel && flag->name != "model")
        fail_param(ErrorCode::kInvalidArgument, name,
                   "{} is about a model that is loaded here: leave it out, or leave out --url",
                   name);
      if (!remote && flag->group == FlagGroup::kRemote)
        fail_param(ErrorCode::kInvalidArgument, name, "{} is for the server of --url: add --url",
                   name);
    }
  }

  // Every answer would have to be longer than it may be.
  void check_limits() const {
    const LimitOptions& limits = options_.limits;
    if (limits.max_tokens.value_or(-1) >= 0 && limits.min_tokens > *limits.max_tokens)
      fail_param(ErrorCode::kInvalidArgument, "--min-tokens",
                 "--min-tokens ({}) is more than --max-tokens ({}): no answer could be that long",
                 limits.min_tokens, *limits.max_tokens);
  }

  void read_flag(const std::string& arg) {
    const size_t equals = arg.find('=');
    const std::string name = canonical(arg.substr(0, equals));
    const Flag* flag = find(verb_, name);
    if (!flag)
      fail_param(ErrorCode::kInvalidArgument, name, "{} is no option of {}{}", name, verb_.name,
                 explain_unknown(verb_, name));
    const bool first = std::find(seen_.begin(), seen_.end(), flag) == seen_.end();
    seen_.push_back(flag);
    if (equals != std::string::npos)
      store({*flag, name, std::string_view(arg).substr(equals + 1), first}, options_);
    else if (flag->value.empty())
      store({*flag, name, "true", first}, options_);
    else if (next_ == args_.size() || find(verb_, canonical(args_[next_])))
      fail_param(ErrorCode::kInvalidArgument, name, "{} needs a value: {} {}", name, name,
                 flag->value);
    else
      store({*flag, name, args_[next_++], first}, options_);
  }

  const Verb& verb_;
  std::span<const std::string> args_;
  Options& options_;
  size_t next_ = 0;
  std::vector<std::string> words_;
  std::vector<const Flag*> seen_;
};

}  // namespace

std::string environment_name(std::string_view flag) {
  std::string name = "MANTOU_";
  for (char c : flag) name += c == '-' ? '_' : char(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

const Flag* find_flag(const Verb& verb, std::string_view name) {
  const std::string dashes = name.starts_with('-') ? "" : "--";
  return find(verb, canonical(dashes + std::string(name)));
}

void set_flag(const Flag& flag, const std::string& shown, std::string_view text, Options& options,
              bool first) {
  store({flag, shown, text, first}, options);
}

Options parse(const Verb& verb, std::span<const std::string> args, const Environment& environment) {
  Options options;
  read_environment(verb, environment, options);
  Parser(verb, args, options).run();
  return options;
}

}  // namespace mantou::cli
