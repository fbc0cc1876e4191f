#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <future>

#include "base/available_memory.h"
#include "cli/build_info.h"
#include "cli/load.h"
#include "cli/verbs/verbs.h"
#include "server/server.h"

namespace mantou::cli {
namespace {

constexpr std::chrono::seconds kGrace{30};  // for answers in progress at the end

server::RequestDefaults defaults_of(const LoadedModel& model, const Options& options) {
  server::RequestDefaults defaults;
  defaults.sampling = model.sampling;
  apply(options.sampling, defaults.sampling);
  defaults.seed = options.sampling.seed;
  apply(options.limits, defaults.limits);
  defaults.stop = options.limits.stop;
  defaults.template_kwargs = chat_options(options.prompt).extra;
  return defaults;
}

// Blocks SIGINT and SIGTERM in this thread and those it starts; wait() takes one of them.
class TerminationSignals {
 public:
  TerminationSignals() {
    ::sigemptyset(&set_);
    ::sigaddset(&set_, SIGINT);
    ::sigaddset(&set_, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  int wait() const {
    int signal = 0;
    ::sigwait(&set_, &signal);
    return signal;
  }
  // Lets a signal that comes within a hundredth of a second end the process at once.
  void end_if_any_comes() const {
    const timespec patience{0, 10'000'000};
    const int signal = ::sigtimedwait(&set_, nullptr, &patience);
    if (signal <= 0) return;
    release();
    ::raise(signal);
  }
  // The next signal ends the process at once, also where a shell had it ignored (`mantou serve &`
  // in a script).
  void release() const {
    for (const int signal : {SIGINT, SIGTERM}) ::signal(signal, SIG_DFL);
    ::pthread_sigmask(SIG_UNBLOCK, &set_, nullptr);
  }

 private:
  sigset_t set_;
};

// Loads on another thread, which like all those it starts leaves the signals to this one.
LoadedModel load_or_end(const ModelOptions& options, const TerminationSignals& signals) {
  std::future<LoadedModel> loading =
      std::async(std::launch::async, [&options] { return load_model(options); });
  while (loading.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
    signals.end_if_any_comes();
  return loading.get();
}

text::OutputFormat output_format(const LoadedModel& model, const Options& options) {
  text::OutputFormat format = model.output_format;
  if (options.server.tool_format != "auto") {
    text::require_tool_format(options.server.tool_format, "tool_call_parser");
    format.tools = options.server.tool_format;
  }
  format.reasoning = reasoning_format(options.prompt, format.reasoning);
  return format;
}

// Memory for the states of requests: what was asked for, or three quarters of what is free behind
// the cache of earlier prompts.
uint64_t state_bytes(const Options& options) {
  if (options.server.kv_memory > 0) return uint64_t(options.server.kv_memory) << 20;
  const uint64_t free = available_memory(), cache = uint64_t(options.model.cache_ram) << 20;
  if (free == 0) return std::numeric_limits<uint64_t>::max();
  return std::max(free - std::min(free, cache), free / 4) / 4 * 3;
}

}  // namespace

int run_serve(const Options& options) {
  const TerminationSignals signals;
  server::ServerOptions server_options;
  server_options.http.host = options.server.host;
  server_options.http.port = options.server.port;
  server_options.http.limits.body_bytes = size_t(options.server.body_limit) << 20;
  server_options.http.allowed_origins = options.server.cors_origins;
  server_options.api_key = options.server.api_key;
  server::Server server(server_options);  // answers 503 until the model is there

  LoadedModel model = load_or_end(options.model, signals);
  if (model.chat_template->is_fallback())
    fmt::print(stderr, "{} has no chat template, ChatML is used.\n", model.name);
  EngineOptions engine_options;
  engine_options.max_queued = options.server.queue;
  engine_options.steps.schedule = schedule_of(model, options.model);
  engine_options.steps.state_bytes = state_bytes(options);
  Engine engine(std::move(model.executor), engine_options);
  server.attach({engine, model.tokenizer, model.chat_template, model.name,
                 int64_t(std::time(nullptr)), defaults_of(model, options),
                  output_format(model, options), model.path,
                  *kRevision ? fmt::format("mantou {} ({})", kProgramVersion, kRevision)
                             : fmt::format("mantou {}", kProgramVersion)});
  fmt::print("{} is served at http://{}:{}/v1 (loaded in {:.2f} s, context {}; Ctrl-C ends)\n",
             model.name, options.server.host, server.port(), model.load_seconds,
             model.capabilities.context);
  std::fflush(stdout);

  signals.wait();
  signals.release();
  fmt::print(stderr, "ending: answers in progress get {} s, a second signal ends at once\n",
             kGrace.count());
  server.stop_accepting();
  engine.shutdown(kGrace);
  server.stop(kGrace);
  return 0;
}

}  // namespace mantou::cli
