// What the engine counts, as Prometheus reads it: text format 0.0.4. Names are vLLM's under a
// prefix of our own, so that its dashboards and load tests find them, and llama-server's as it
// spells them. Pure functions of a snapshot; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "engine/stats.h"

namespace mantou::server {

inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4";

// Writes families one after another, each with its HELP and TYPE.
class PrometheusText {
 public:
  enum class Type { kCounter, kGauge };
  using Sample = std::pair<std::string_view, double>;  // the label's value and the number

  // Names of what follows begin with `prefix`, its samples have this label (none: empty name).
  void set_scope(std::string_view prefix, std::string_view label = {}, std::string_view value = {});

  void add(Type type, std::string_view name, std::string_view help, double value);
  // One sample for each value of the label.
  void add(Type type, std::string_view name, std::string_view help, std::string_view label,
           std::span<const Sample> samples);
  void add(std::string_view name, std::string_view help, const Histogram& histogram);

  const std::string& text() const { return text_; }

 private:
  void head(std::string_view name, std::string_view help, std::string_view type);
  void sample(std::string_view name, std::string_view label, std::string_view value, double number);

  std::string prefix_, scope_;  // scope_: a whole label, or empty
  std::string text_;
};

// All there is to say of an engine. `started`: seconds since 1970.
std::string metrics_text(const EngineStats& stats, std::string_view model, int64_t started);

// The part of the memory for rows' states that is promised to them; 0 without a limit.
double state_usage(const EngineStats& stats);

}  // namespace mantou::server
