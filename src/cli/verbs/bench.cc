// Measures prompt processing and generation as llama-bench does, with its columns.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/cpu_features.h"
#include "base/error.h"
#include "cli/load.h"
#include "cli/verbs/verbs.h"
#include "engine/step_pipeline.h"

namespace mantou::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Test {
  int prompt = 0, gen = 0, depth = 0;
};

struct Row {
  Test test;
  int threads = 0;
  std::vector<double> seconds;  // one a repetition

  std::vector<double> rates() const {
    std::vector<double> r;
    for (const double s : seconds) r.push_back(double(test.prompt + test.gen) / s);
    return r;
  }
};

double mean(const std::vector<double>& v) {
  return std::accumulate(v.begin(), v.end(), 0.0) / double(v.size());
}

double deviation(const std::vector<double>& v) {
  if (v.size() < 2) return 0;
  double sum = 0;
  for (const double x : v) sum += (x - mean(v)) * (x - mean(v));
  return std::sqrt(sum / double(v.size() - 1));
}

// "pp512", "tg128", with "@ d2048" behind it when the cache was not empty.
std::string name_of(const Test& test) {
  std::string name =
      test.prompt > 0 ? fmt::format("pp{}", test.prompt) : fmt::format("tg{}", test.gen);
  if (test.depth > 0) name += fmt::format(" @ d{}", test.depth);
  return name;
}

// Drives an Executor without an engine: this thread is the engine thread.
class Runner {
 public:
  Runner(LoadedModel& model, const SchedulerOptions& schedule)
      : model_(model), steps_(*model.executor), schedule_(schedule) {}

  // Seconds of the timed part: `prompt` tokens behind `depth`, or `gen` single steps.
  double run(const Test& test) {
    Request request = make_request(test);
    model_.executor->admit(request, {.max_tokens = request.limits.max_tokens});
    // Generation starts with one token in the cache, as llama-bench's does.
    const int before = test.prompt > 0 ? test.depth : test.depth + 1;
    forward(request.id, before, test.prompt == 0);
    const auto start = Clock::now();
    if (test.prompt > 0) forward(request.id, test.prompt, true);
    for (int i = 0; i < test.gen; i++) step({request.id, 1, Output::kSample}, i + 1 < test.gen);
    const std::chrono::duration<double> took = Clock::now() - start;
    model_.executor->release(request.id, Release::kDrop);
    return took.count();
  }

 private:
  Request make_request(const Test& test) {
    Request request;
    request.id = ++last_id_;
    request.sampling.temperature = 0;
    request.limits.ignore_eos = true;
    request.limits.max_tokens = test.gen + 1;
    const int tokens = std::max(1, test.prompt) + test.depth;
    uint32_t state = 1;
    for (int i = 0; i < tokens; i++) {
      state = state * 1664525u + 1013904223u;  // any ids will do; the same in each repetition
      request.prompt.push_back(TokenId(state >> 8) % model_.capabilities.vocab_size);
    }
    return request;
  }

  void forward(RequestId id, int tokens, bool sample_last) {
    for (int done = 0; done < tokens;) {
      // Without a token sampled at its end, a prompt has one more to go.
      const int left = tokens - done;
      const int n = std::min(
          left, int(schedule_.chunk_of(sample_last ? left : left + 1, schedule_.chunk_alone)));
      done += n;
      step({id, n, sample_last && done == tokens ? Output::kSample : Output::kNone});
    }
  }

  // `again`: the same will follow.
  void step(const Work& work, bool again = false) {
    const StepPlan plan{{work}};
    const StepResults results = steps_.run(plan, again ? &plan : nullptr);
    if (results.rows.at(0).error) throw *results.rows[0].error;
  }

  LoadedModel& model_;
  StepPipeline steps_;
  const SchedulerOptions schedule_;
  RequestId last_id_ = 0;
};

std::vector<Test> tests_of(const BenchOptions& options) {
  std::vector<Test> tests;
  for (const int depth : options.depth) {
    for (const int n : options.prompt)
      if (n > 0) tests.push_back({n, 0, depth});
    for (const int n : options.gen)
      if (n > 0) tests.push_back({0, n, depth});
  }
  if (tests.empty())
    fail_param(ErrorCode::kInvalidArgument, "-p", "nothing to measure: -p and -n are both 0");
  return tests;
}

nlohmann::json describe(const Row& row, const LoadedModel& model) {
  const std::vector<double> rates = row.rates();
  std::vector<int64_t> ns;
  for (const double s : row.seconds) ns.push_back(int64_t(s * 1e9));
  return {{"model_filename", model.path},
          {"model_type", model.capabilities.architecture},
          {"model_size", model.bytes},
          {"model_n_params", model.parameters},
          {"backends", model.capabilities.backend},
          {"cpu_isa", isa_name(isa_from_environment())},
          {"n_threads", row.threads},
          {"n_prompt", row.test.prompt},
          {"n_gen", row.test.gen},
          {"n_depth", row.test.depth},
          {"avg_ns", int64_t(mean(row.seconds) * 1e9)},
          {"stddev_ns", int64_t(deviation(row.seconds) * 1e9)},
          {"avg_ts", mean(rates)},
          {"stddev_ts", deviation(rates)},
          {"samples_ns", ns},
          {"samples_ts", rates}};
}

void print_markdown(const Row& row, const LoadedModel& model) {
  const std::vector<double> rates = row.rates();
  fmt::print("| {:<30} | {:>10} | {:>9} | {:<7} | {:>7} | {:>15} | {:>16} |\n", model.name,
             fmt::format("{:.2f} MiB", double(model.bytes) / (1 << 20)),
             fmt::format("{:.2f} M", double(model.parameters) / 1e6), model.capabilities.backend,
             row.threads, name_of(row.test),
             fmt::format("{:.2f} ± {:.2f}", mean(rates), deviation(rates)));
}

void print_csv(const nlohmann::json& row, bool first) {
  std::vector<std::string> keys, values;
  for (const auto& [key, value] : row.items()) {
    if (value.is_array()) continue;
    keys.push_back(key);
    values.push_back(value.dump());
  }
  if (first) fmt::print("{}\n", fmt::join(keys, ","));
  fmt::print("{}\n", fmt::join(values, ","));
}

}  // namespace

int run_bench(const Options& options) {
  const std::vector<Test> tests = tests_of(options.bench);
  nlohmann::json all = nlohmann::json::array();
  const auto head = [&] {
    fmt::print(
        "| {:<30} | {:>10} | {:>9} | {:<7} | {:>7} | {:>15} | {:>16} |\n"
        "| {:-<30} | {:->9}: | {:->8}: | {:-<7} | {:->6}: | {:->14}: | {:->15}: |\n",
        "model", "size", "params", "backend", "threads", "test", "t/s", "", "", "", "", "", "", "");
  };
  for (const int threads : options.bench.threads) {
    ModelOptions model_options = options.model;
    model_options.threads = threads;
    LoadedModel model = load_model(model_options);
    if (options.bench.output == TableFormat::kMarkdown && all.empty()) head();
    Runner runner(model, schedule_of(model, options.model));
    for (const Test& test : tests) {
      Row row{test, model.threads, {}};
      runner.run({test.prompt > 0 ? std::min(test.prompt, 64) : 0, std::min(test.gen, 4), 0});
      for (int i = 0; i < options.bench.repetitions; i++) row.seconds.push_back(runner.run(test));
      all.push_back(describe(row, model));
      if (options.bench.output == TableFormat::kMarkdown) print_markdown(row, model);
      if (options.bench.output == TableFormat::kCsv) print_csv(all.back(), all.size() == 1);
      std::fflush(stdout);
    }
  }
  if (options.bench.output == TableFormat::kJson) fmt::print("{}\n", all.dump(2));
  return 0;
}

}  // namespace mantou::cli
