// The Prometheus text format, read back by its rules (exposition formats, version 0.0.4).
#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace mantou::server {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Key;

struct Family {
  std::string type;
  std::vector<std::pair<std::string, double>> samples;  // name and labels, number
};

// Throws what is wrong with it.
std::map<std::string, Family> parsed(const std::string& text) {
  static const std::regex kHead(R"(# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+))");
  static const std::regex kSample(
      R"(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[a-z_]+="(?:[^"\\]|\\.)*"(?:,[a-z_]+="(?:[^"\\]|\\.)*")*\})? (\S+))");
  std::map<std::string, Family> families;
  std::set<std::string> helped;
  std::string family, line;
  if (!text.ends_with('\n')) throw std::runtime_error("no line break at the end");
  std::istringstream lines(text);
  while (std::getline(lines, line)) {
    std::smatch match;
    if (std::regex_match(line, match, kHead)) {
      if (match[1] == "HELP") {
        if (!helped.insert(match[2]).second) throw std::runtime_error("twice: " + line);
      } else {
        if (!helped.contains(match[2])) throw std::runtime_error("no help: " + line);
        family = match[2];
        families[family].type = match[3];
      }
      continue;
    }
    if (!std::regex_match(line, match, kSample)) throw std::runtime_error("no sample: " + line);
    const std::string name = match[1];
    const bool own =
        families[family].type == "histogram"
            ? name == family + "_bucket" || name == family + "_sum" || name == family + "_count"
            : name == family;
    if (!own) throw std::runtime_error("outside its family: " + line);
    const std::string number = match[3];
    families[family].samples.emplace_back(name.substr(family.size()) + match[2].str(),
                                          number == "+Inf" ? HUGE_VAL : std::stod(number));
  }
  return families;
}

double value(const std::map<std::string, Family>& families, const std::string& name) {
  return families.at(name).samples.at(0).second;
}

EngineStats some_stats() {
  EngineStats stats;
  stats.finished = {3, 2, 1, 4};
  stats.invalid = 6;
  stats.prompt_tokens = 100;
  stats.cached_tokens = 40;
  stats.completion_tokens = 7;
  stats.steps = 4;
  stats.rows_of_steps = 6;
  stats.waiting = 5;
  stats.max_rows = 8;
  stats.state_budget = 1000;
  stats.state_reserved = 250;
  stats.cache = {2, 300, 400, 1};
  stats.rows.resize(3);
  for (const double seconds : {.003, .003, 2000.0}) stats.first_token.add(seconds);
  stats.prefill.add(2);
  stats.between_tokens.add(.5);
  return stats;
}

TEST(MetricsTest, EveryFamilyIsWellFormed) {
  const auto families = parsed(metrics_text(some_stats(), "org/\"tiny\"\\1\n", 1700000000));
  EXPECT_EQ(value(families, "mantou:num_requests_running"), 3);
  EXPECT_EQ(value(families, "mantou:num_requests_waiting"), 5);
  EXPECT_EQ(value(families, "mantou:kv_cache_usage_perc"), .25);
  EXPECT_EQ(value(families, "mantou:prompt_tokens_total"), 140);
  EXPECT_EQ(value(families, "mantou:generation_tokens_total"), 7);
  EXPECT_EQ(value(families, "mantou:prefix_cache_bytes"), 300);
  EXPECT_EQ(value(families, "llamacpp:prompt_tokens_total"), 100);
  EXPECT_EQ(value(families, "llamacpp:prompt_tokens_cached_total"), 40);
  EXPECT_EQ(value(families, "llamacpp:prompt_tokens_seconds"), 50);
  EXPECT_EQ(value(families, "llamacpp:predicted_tokens_seconds"), 2);
  EXPECT_EQ(value(families, "llamacpp:n_busy_slots_per_decode"), 1.5);
  EXPECT_EQ(value(families, "process_start_time_seconds"), 1700000000);
  const std::string model = R"({model_name="org/\"tiny\"\\1\n")";
  EXPECT_THAT(families.at("mantou:request_success_total").samples,
              testing::ElementsAre(std::pair(model + R"(,finished_reason="stop"})", 3.0),
                                   std::pair(model + R"(,finished_reason="length"})", 2.0),
                                   std::pair(model + R"(,finished_reason="abort"})", 1.0),
                                   std::pair(model + R"(,finished_reason="error"})", 4.0),
                                   std::pair(model + R"(,finished_reason="invalid"})", 6.0)));
}

TEST(MetricsTest, BucketsAreCumulativeAndEndWithInfinity) {
  const auto families = parsed(metrics_text(some_stats(), "m", 0));
  int histograms = 0;
  for (const auto& [name, family] : families) {
    if (family.type != "histogram") continue;
    ++histograms;
    double last = 0;
    const size_t buckets = family.samples.size() - 2;
    for (size_t i = 0; i < buckets; i++) {
      EXPECT_GE(family.samples[i].second, last) << name;
      last = family.samples[i].second;
    }
    EXPECT_THAT(family.samples[buckets - 1].first, HasSubstr("le=\"+Inf\"")) << name;
    EXPECT_THAT(family.samples[buckets].first, HasSubstr("_sum")) << name;
    EXPECT_THAT(family.samples[buckets + 1].first, HasSubstr("_count")) << name;
    EXPECT_EQ(family.samples[buckets + 1].second, last) << name;
  }
  EXPECT_EQ(histograms, 8);
  const auto& first = families.at("mantou:time_to_first_token_seconds").samples;
  EXPECT_EQ(first[1], std::pair(std::string(R"(_bucket{model_name="m",le="0.0025"})"), 0.0));
  EXPECT_EQ(first[2], std::pair(std::string(R"(_bucket{model_name="m",le="0.005"})"), 2.0));
  EXPECT_EQ(first[23], std::pair(std::string(R"(_bucket{model_name="m",le="1000"})"), 2.0));
  EXPECT_EQ(first[24], std::pair(std::string(R"(_bucket{model_name="m",le="+Inf"})"), 3.0));
  EXPECT_EQ(first[25].second, 2000.006);
}

TEST(MetricsTest, NoLimitOfMemoryIsInfinite) {
  EngineStats stats;
  stats.state_budget = std::numeric_limits<uint64_t>::max();
  stats.state_reserved = 1 << 20;
  const auto families = parsed(metrics_text(stats, "m", 0));
  EXPECT_EQ(value(families, "mantou:kv_cache_budget_bytes"), HUGE_VAL);
  EXPECT_EQ(value(families, "mantou:kv_cache_usage_perc"), 0);
}

// The names that dashboards of vLLM and llama-server look for.
TEST(MetricsTest, NamesAreThoseOfVllmAndLlamaServer) {
  const auto families = parsed(metrics_text({}, "m", 0));
  for (const char* name :
       {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
        "prefix_cache_queries_total", "prefix_cache_hits_total", "prompt_tokens_total",
        "generation_tokens_total", "request_success_total", "time_to_first_token_seconds",
        "inter_token_latency_seconds", "request_queue_time_seconds", "request_prefill_time_seconds",
        "request_decode_time_seconds", "e2e_request_latency_seconds", "request_prompt_tokens",
        "request_generation_tokens"})
    EXPECT_THAT(families, Contains(Key(std::string("mantou:") + name)));
  for (const char* name :
       {"prompt_tokens_total", "prompt_tokens_cached_total", "prompt_seconds_total",
        "tokens_predicted_total", "tokens_predicted_seconds_total", "n_decode_total",
        "n_tokens_max", "prompt_tokens_seconds", "predicted_tokens_seconds", "requests_processing",
        "requests_deferred", "n_busy_slots_per_decode"})
    EXPECT_THAT(families, Contains(Key(std::string("llamacpp:") + name)));
}

}  // namespace
}  // namespace mantou::server
