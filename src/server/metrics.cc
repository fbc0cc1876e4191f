#include "server/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace mantou::server {
namespace {

std::string escaped(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || (quotes && c == '"')) out += '\\';
    if (c == '\n') out += '\\';
    out += c == '\n' ? 'n' : c;
  }
  return out;
}

std::string label_text(std::string_view label, std::string_view value) {
  return fmt::format("{}=\"{}\"", label, escaped(value, true));
}

std::string number_text(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", number);
}

// A limit that is no limit.
double bytes_or_infinity(uint64_t bytes) {
  return bytes == std::numeric_limits<uint64_t>::max() ? INFINITY : double(bytes);
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

using Type = PrometheusText::Type;

struct Single {
  Type type;
  std::string_view name, help;
  double (*value)(const EngineStats&);
};

constexpr Single kOwn[] = {
    {Type::kGauge, "num_requests_running", "Requests that are being answered.",
     [](const EngineStats& s) { return double(s.rows.size()); }},
    {Type::kGauge, "num_requests_waiting", "Requests that wait for admission.",
     [](const EngineStats& s) { return double(s.waiting); }},
    {Type::kGauge, "max_num_requests", "Requests that may be answered at once.",
     [](const EngineStats& s) { return double(s.max_rows); }},
    {Type::kCounter, "requests_refused_total", "Requests for which the queue was full.",
     [](const EngineStats& s) { return double(s.refused); }},
    {Type::kGauge, "kv_cache_usage_perc",
     "Part (0 to 1) of the memory for keys and values that is reserved by requests.", state_usage},
    {Type::kGauge, "kv_cache_reserved_bytes", "Keys and values reserved by requests.",
     [](const EngineStats& s) { return double(s.state_reserved); }},
    {Type::kGauge, "kv_cache_budget_bytes", "Keys and values that requests may reserve.",
     [](const EngineStats& s) { return bytes_or_infinity(s.state_budget); }},
    {Type::kCounter, "prefix_cache_queries_total", "Prompt tokens looked for in kept state.",
     [](const EngineStats& s) { return double(s.cache_queries); }},
    {Type::kCounter, "prefix_cache_hits_total", "Prompt tokens whose kept state was used.",
     [](const EngineStats& s) { return double(s.cached_tokens); }},
    {Type::kGauge, "prefix_cache_entries", "Sequences whose state is kept.",
     [](const EngineStats& s) { return double(s.cache.entries); }},
    {Type::kGauge, "prefix_cache_bytes", "State that is kept for later prompts.",
     [](const EngineStats& s) { return double(s.cache.bytes); }},
    {Type::kGauge, "prefix_cache_capacity_bytes", "State that may be kept for later prompts.",
     [](const EngineStats& s) { return double(s.cache.capacity); }},
    {Type::kCounter, "prefix_cache_evictions_total", "Kept sequences that made room for others.",
     [](const EngineStats& s) { return double(s.cache.evicted); }},
    {Type::kCounter, "prompt_tokens_total", "Prompt tokens, those of kept state included.",
     [](const EngineStats& s) { return double(s.prompt_tokens + s.cached_tokens); }},
    {Type::kCounter, "generation_tokens_total", "Tokens that were generated.",
     [](const EngineStats& s) { return double(s.completion_tokens); }},
    {Type::kCounter, "steps_total", "Steps of the model.",
     [](const EngineStats& s) { return double(s.steps); }},
};

struct Timed {
  std::string_view name, help;
  Histogram EngineStats::* histogram;
};

constexpr Timed kHistograms[] = {
    {"time_to_first_token_seconds", "From a request's arrival to its first token.",
     &EngineStats::first_token},
    {"inter_token_latency_seconds", "From a token to the next one of the same answer.",
     &EngineStats::between_tokens},
    {"request_queue_time_seconds", "From arrival to admission.", &EngineStats::queue},
    {"request_prefill_time_seconds", "From admission to the first token.", &EngineStats::prefill},
    {"request_decode_time_seconds", "From the first token to the end.", &EngineStats::decode},
    {"e2e_request_latency_seconds", "From arrival to the end.", &EngineStats::requests},
    {"request_prompt_tokens", "Tokens of prompts.", &EngineStats::prompts},
    {"request_generation_tokens", "Tokens of answers.", &EngineStats::completions},
};

constexpr Single kLlama[] = {
    {Type::kCounter, "prompt_tokens_total", "Number of prompt tokens processed, without cached.",
     [](const EngineStats& s) { return double(s.prompt_tokens); }},
    {Type::kCounter, "prompt_tokens_cached_total", "Number of prompt tokens reused from the cache.",
     [](const EngineStats& s) { return double(s.cached_tokens); }},
    {Type::kCounter, "prompt_seconds_total", "Prompt process time.",
     [](const EngineStats& s) { return s.prefill.sum(); }},
    {Type::kCounter, "tokens_predicted_total", "Number of generation tokens processed.",
     [](const EngineStats& s) { return double(s.completion_tokens); }},
    {Type::kCounter, "tokens_predicted_seconds_total", "Predict process time.",
     [](const EngineStats& s) { return s.between_tokens.sum(); }},
    {Type::kCounter, "n_decode_total", "Number of steps of the model.",
     [](const EngineStats& s) { return double(s.steps); }},
    {Type::kCounter, "n_tokens_max", "Longest sequence so far, prompt and answer.",
     [](const EngineStats& s) { return double(s.longest); }},
    {Type::kGauge, "prompt_tokens_seconds", "Average prompt throughput in tokens/s.",
     [](const EngineStats& s) { return ratio(double(s.prompt_tokens), s.prefill.sum()); }},
    {Type::kGauge, "predicted_tokens_seconds", "Average generation throughput in tokens/s.",
     [](const EngineStats& s) {
       return ratio(double(s.between_tokens.count()), s.between_tokens.sum());
     }},
    {Type::kGauge, "requests_processing", "Number of requests processing.",
     [](const EngineStats& s) { return double(s.rows.size()); }},
    {Type::kGauge, "requests_deferred", "Number of requests deferred.",
     [](const EngineStats& s) { return double(s.waiting); }},
    {Type::kGauge, "n_busy_slots_per_decode", "Average number of rows in a step.",
     [](const EngineStats& s) { return ratio(double(s.rows_of_steps), double(s.steps)); }},
};

void add_all(PrometheusText& out, std::span<const Single> table, const EngineStats& stats) {
  for (const Single& each : table) out.add(each.type, each.name, each.help, each.value(stats));
}

}  // namespace

void PrometheusText::set_scope(std::string_view prefix, std::string_view label,
                               std::string_view value) {
  prefix_ = prefix;
  scope_ = label.empty() ? "" : label_text(label, value);
}

void PrometheusText::head(std::string_view name, std::string_view help, std::string_view type) {
  text_ += fmt::format("# HELP {0}{1} {2}\n# TYPE {0}{1} {3}\n", prefix_, name,
                       escaped(help, false), type);
}

void PrometheusText::sample(std::string_view name, std::string_view label, std::string_view value,
                            double number) {
  std::string labels = scope_;
  if (!label.empty()) labels += (labels.empty() ? "" : ",") + label_text(label, value);
  if (!labels.empty()) labels = "{" + labels + "}";
  text_ += fmt::format("{}{}{} {}\n", prefix_, name, labels, number_text(number));
}

void PrometheusText::add(Type type, std::string_view name, std::string_view help, double value) {
  const Sample only{"", value};
  add(type, name, help, "", {&only, 1});
}

void PrometheusText::add(Type type, std::string_view name, std::string_view help,
                         std::string_view label, std::span<const Sample> samples) {
  head(name, help, type == Type::kCounter ? "counter" : "gauge");
  for (const auto& [value, number] : samples) sample(name, label, value, number);
}

void PrometheusText::add(std::string_view name, std::string_view help, const Histogram& histogram) {
  head(name, help, "histogram");
  const std::string bucket = fmt::format("{}_bucket", name);
  uint64_t total = 0;
  for (size_t i = 0; i < histogram.bounds().size(); ++i) {
    total += histogram.in_bucket(i);
    sample(bucket, "le", number_text(histogram.bounds()[i]), double(total));
  }
  sample(bucket, "le", "+Inf", double(histogram.count()));
  sample(fmt::format("{}_sum", name), "", "", histogram.sum());
  sample(fmt::format("{}_count", name), "", "", double(histogram.count()));
}

double state_usage(const EngineStats& stats) {
  return ratio(double(stats.state_reserved), bytes_or_infinity(stats.state_budget));
}

std::string metrics_text(const EngineStats& stats, std::string_view model, int64_t started) {
  PrometheusText out;
  out.set_scope("mantou:", "model_name", model);
  add_all(out, kOwn, stats);
  const PrometheusText::Sample finished[] = {
      {"stop", double(stats.count(FinishReason::kStop))},
      {"length", double(stats.count(FinishReason::kLength))},
      {"abort", double(stats.count(FinishReason::kCancelled))},
      {"error", double(stats.count(FinishReason::kError))},
      {"invalid", double(stats.invalid)}};
  out.add(Type::kCounter, "request_success_total", "Requests that have ended, by how.",
          "finished_reason", finished);
  for (const Timed& each : kHistograms) out.add(each.name, each.help, stats.*each.histogram);
  out.set_scope("llamacpp:");
  add_all(out, kLlama, stats);
  out.set_scope("");
  out.add(Type::kGauge, "process_start_time_seconds", "When the model was loaded, since 1970.",
          double(started));
  return out.text();
}

}  // namespace mantou::server
