#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/available_memory.h"
#include "base/cpu_count.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/find_model.h"
#include "cli/human.h"
#include "cli/memory_bandwidth.h"
#include "cli/memory_need.h"
#include "cli/verbs/verbs.h"

namespace mantou::cli {
namespace {

// Left to the program itself (activations, tokenizer) and to others.
constexpr uint64_t kLeastReserve = uint64_t{256} << 20;
uint64_t reserve_of(uint64_t available) { return std::max(kLeastReserve, available / 20); }

struct Fit {
  std::string name;
  MemoryNeed need;
  uint64_t available = 0, reserve = 0;
  int64_t context = 0;   // 0: not even the weights fit
  double bandwidth = 0;  // bytes per second, measured
  int threads = 0;

  uint64_t cache_bytes() const { return need.cache_bytes(context); }
  // What bounds generation: each token reads the weights and the keys and values before it.
  double tokens_per_second(int64_t filled) const {
    return bandwidth / double(need.read_per_token + need.cache_bytes(filled));
  }
};

Fit measure(const Options& options) {
  const auto artifact = hub::ModelArtifact::open(find_model(options.model));
  Fit fit;
  fit.name = artifact->name();
  fit.need = memory_need(*artifact, options.model);
  fit.available = available_memory();
  fit.reserve = reserve_of(fit.available);
  const uint64_t taken = fit.need.weights + fit.reserve;
  if (fit.available > taken) fit.context = fit.need.largest_context(fit.available - taken);
  fit.threads = options.model.threads > 0 ? options.model.threads : default_thread_count();
  constexpr uint64_t kBuffer = uint64_t{1} << 30;  // beyond what caches hold
  fit.bandwidth = measure_memory_bandwidth(fit.threads, std::min(kBuffer, fit.available / 4));
  return fit;
}

void print_json(const Fit& fit) {
  nlohmann::json out = {{"name", fit.name},
                        {"weights", fit.need.weights},
                        {"available", fit.available},
                        {"reserve", fit.reserve},
                        {"train_context", fit.need.train_context},
                        {"context", fit.context},
                        {"cache", fit.cache_bytes()},
                        {"threads", fit.threads},
                        {"memory_bandwidth", fit.bandwidth},
                        {"estimated_tokens_per_second", fit.tokens_per_second(0)},
                        {"estimated_tokens_per_second_full", fit.tokens_per_second(fit.context)}};
  fmt::print("{}\n", to_text(out, 2));
}

void print_report(const Fit& fit) {
  fmt::print("name       {}\nmemory     {} available, {} of it kept free\nweights    {}\n",
             fit.name, human_bytes(double(fit.available)), human_bytes(double(fit.reserve)),
             human_bytes(double(fit.need.weights)));
  if (fit.context == 0)
    fmt::print(
        "context    none: the model does not fit; close programs or take a smaller "
        "quantization\n");
  else
    fmt::print("context    {} tokens of {} fit, with {} of cache\n", fit.context,
               fit.need.train_context, human_bytes(double(fit.cache_bytes())));
  fmt::print("reading    {}/s of memory, measured with {} threads\n", human_bytes(fit.bandwidth),
             fit.threads);
  fmt::print("writing    about {:.0f} tokens/s at first", fit.tokens_per_second(0));
  if (fit.context > 0)
    fmt::print(", {:.0f} when the context is full", fit.tokens_per_second(fit.context));
  fmt::print(" (an estimate: what memory allows at best; `mantou bench` measures)\n");
}

}  // namespace

int run_fit(const Options& options) {
  const Fit fit = measure(options);
  if (options.json)
    print_json(fit);
  else
    print_report(fit);
  return 0;
}

}  // namespace mantou::cli
