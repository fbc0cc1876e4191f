#include "cli/chat/settings.h"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/nearest.h"
#include "cli/verbs/verbs.h"

namespace mantou::cli {
namespace {

using nlohmann::ordered_json;

// In the order in which they are shown.
constexpr std::string_view kNames[] = {"temperature",
                                       "top_p",
                                       "top_k",
                                       "min_p",
                                       "seed",
                                       "max_tokens",
                                       "min_tokens",
                                       "stop",
                                       "ignore_eos",
                                       "presence_penalty",
                                       "frequency_penalty",
                                       "repetition_penalty",
                                       "repetition_context_size",
                                       "repeat_last_n",
                                       "xtc_probability",
                                       "xtc_threshold"};

const Flag& flag_of(std::string_view name) {
  const Flag* flag = find_flag(find_verb("chat"), name);
  if (flag != nullptr && (flag->group == FlagGroup::kSampling || flag->group == FlagGroup::kLimits))
    return *flag;
  const std::vector<std::string> known(std::begin(kNames), std::end(kNames));
  std::string hint = did_you_mean(name, known);
  if (hint.empty()) hint = fmt::format("; there are {}", fmt::join(known, ", "));
  fail_param(ErrorCode::kInvalidArgument, std::string(name), "there is no setting \"{}\"{}", name,
             hint);
}

Options as_options(const ChatSettings& settings) {
  Options options;
  options.sampling = settings.sampling;
  options.limits = settings.limits;
  return options;
}

void take(ChatSettings& settings, const Options& options) {
  settings = {options.sampling, options.limits};
}

// What stands in the flag's place; null when nothing was given.
ordered_json value_of(const Flag& flag, Options options) {
  return std::visit(
      [](const auto& place) -> ordered_json {
        using Place = std::decay_t<decltype(place)>;
        if constexpr (std::is_same_v<Place, Choice>) {
          return place.names[size_t(place.get(place.value))];
        } else {
          const auto& value = *place;
          if constexpr (requires { value.has_value(); })
            return value ? ordered_json(*value) : ordered_json();
          else
            return value;
        }
      },
      flag.target(options));
}

}  // namespace

ordered_json to_json(const ChatSettings& settings) {
  ordered_json out = ordered_json::object();
  for (const std::string_view name : kNames) {
    const Flag& flag = flag_of(name);
    ordered_json value = value_of(flag, as_options(settings));
    if (value != value_of(flag, Options())) out[std::string(name)] = std::move(value);
  }
  return out;
}

void set(ChatSettings& settings, std::string_view name, std::string_view value) {
  Options options = as_options(settings);
  set_flag(flag_of(name), std::string(name), value, options);
  take(settings, options);
}

void reset(ChatSettings& settings, std::string_view name, const ChatSettings& from) {
  const Flag& flag = flag_of(name);
  Options options = as_options(settings), source = as_options(from);
  std::visit(
      [](const auto& to, const auto& given) {
        if constexpr (std::is_same_v<decltype(to), decltype(given)>) {
          if constexpr (std::is_pointer_v<std::decay_t<decltype(to)>>)
            *to = *given;
          else
            to.set(to.value, given.get(given.value));
        }
      },
      flag.target(options), flag.target(source));
  take(settings, options);
}

ChatSettings settings_from_json(const ordered_json& json) {
  if (!json.is_object())
    fail_param(ErrorCode::kCorruptData, "settings", "'settings' must be an object");
  Options options;
  for (const auto& [name, value] : json.items()) {
    const Flag& flag = flag_of(name);
    const auto store = [&, key = name](const ordered_json& one, bool first) {
      if (one.is_structured() || one.is_null())
        fail_param(ErrorCode::kCorruptData, key, "'settings.{}' must be a value, not {}", key,
                   one.type_name());
      set_flag(flag, key, one.is_string() ? one.get<std::string>() : to_text(one), options, first);
    };
    if (!value.is_array()) {
      store(value, true);
      continue;
    }
    for (size_t i = 0; i < value.size(); i++) store(value[i], i == 0);
  }
  ChatSettings settings;
  take(settings, options);
  return settings;
}

std::string show(const ChatSettings& settings) {
  const ordered_json given = to_json(settings);
  std::string out;
  for (const std::string_view name : kNames) {
    const Flag& flag = flag_of(name);
    const auto found = given.find(name);
    out += fmt::format("  {:<24}{}\n", name,
                       found != given.end()        ? to_text(*found)
                       : flag.default_text.empty() ? to_text(value_of(flag, Options()))
                                                   : fmt::format("({})", flag.default_text));
  }
  return out;
}

}  // namespace mantou::cli
