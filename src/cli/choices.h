// Options that are one of a few names: the enums behind them, and how a flag reaches such a value.
// For flags_table.h. Immutable; any thread.
#pragma once

#include <array>
#include <string_view>

#include "base/log.h"
#include "cli/flags.h"
#include "cli/options.h"

namespace mantou::cli {

// The names of an enum's values, in the order of the enum.
template <class E>
constexpr std::array<std::string_view, 0> kNames{};
template <>
inline constexpr std::array<std::string_view, 2> kNames<Compute>{"auto", "f32"};
template <>
inline constexpr std::array<std::string_view, 3> kNames<BackendChoice>{"auto", "cpu", "mlx"};
template <>
inline constexpr std::array<std::string_view, 4> kNames<CacheType>{"auto", "f16", "bf16", "f32"};
template <>
inline constexpr std::array<std::string_view, 4> kNames<CacheQuant>{"off", "8", "4", "config"};
template <>
inline constexpr std::array<std::string_view, 3> kNames<Exact>{"false", "true", "mixed"};
template <>
inline constexpr std::array<std::string_view, 5> kNames<LogLevel>{"error", "warn", "info", "debug",
                                                                  "trace"};
template <>
inline constexpr std::array<std::string_view, 2> kNames<LogFormat>{"text", "json"};
template <>
inline constexpr std::array<std::string_view, 3> kNames<TableFormat>{"md", "csv", "json"};

template <class E>
Target choice(E& value) {
  return Choice{&value, [](void* v, int index) { *static_cast<E*>(v) = E(index); },
                [](const void* v) { return int(*static_cast<const E*>(v)); }, kNames<E>};
}

}  // namespace mantou::cli
