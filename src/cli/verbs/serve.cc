#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <future>
#include <optional>

#include "base/available_memory.h"
#include "base/error.h"
#include "cli/build_info.h"
#include "cli/load.h"
#include "cli/verbs/verbs.h"
#include "server/server.h"

namespace mantou::cli {
namespace {

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

// The parts of comma-separated lists.
std::vector<std::string> split(const std::vector<std::string>& lists) {
  std::vector<std::string> parts;
  for (const std::string& list : lists) {
    for (size_t begin = 0; begin <= list.size();) {
      const size_t end = std::min(list.find(',', begin), list.size());
      if (end > begin) parts.push_back(list.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return parts;
}

server::HttpOptions http_options(const ServerOptions& options) {
  server::HttpOptions http;
  http.host = options.host;
  http.port = options.port;
  http.certificate_file = options.ssl_cert_file;
  http.key_file = options.ssl_key_file;
  http.allowed_origins = split(options.cors_origins);
  http.limits.connections = options.max_connections;
  http.limits.body_bytes = size_t(options.body_limit) << 20;
  http.limits.body_time = http.limits.write_time = std::chrono::seconds(options.timeout);
  http.limits.idle_time = std::chrono::seconds(options.keep_alive_timeout);
  return http;
}

server::AccessOptions access_options(const ServerOptions& options) {
  server::AccessOptions access;
  access.api_keys = split(options.api_keys);
  if (access.api_keys.empty() && !options.api_keys.empty())
    fail_param(ErrorCode::kInvalidArgument, "api-key", "--api-key holds no key");
  if (!options.api_key_file.empty()) {
    for (std::string& key : server::read_api_keys(options.api_key_file))
      access.api_keys.push_back(std::move(key));
  }
  access.allowed_hosts = split(options.allowed_hosts);
  return access;
}

}  // namespace

int run_serve(const Options& options) {
  const TerminationSignals signals;
  std::optional<Engine> engine;  // outlives the server's threads, however this ends
  server::Server server(
      {.http = http_options(options.server),
       .access = access_options(options.server)});  // 503 until the model is there

  LoadedModel model = load_or_end(options.model, signals);
  if (model.chat_template->is_fallback())
    fmt::print(stderr, "{} has no chat template, ChatML is used.\n", model.name);
  EngineOptions engine_options;
  engine_options.max_queued = options.server.queue;
  engine_options.steps.schedule = schedule_of(model, options.model);
  engine_options.steps.state_bytes = state_bytes(options);
  engine.emplace(std::move(model.executor), engine_options);
  server.attach({*engine, model.tokenizer, model.chat_template, model.name,
                 int64_t(std::time(nullptr)), defaults_of(model, options),
                 output_format(model, options), model.path,
                 *kRevision ? fmt::format("mantou {} ({})", kProgramVersion, kRevision)
                            : fmt::format("mantou {}", kProgramVersion)});
  fmt::print("{} is served at {}{} (loaded in {:.2f} s, context {}; Ctrl-C ends)\n", model.name,
             server.url(), server::is_socket_path(options.server.host) ? "" : "/v1",
             model.load_seconds, model.capabilities.context);
  std::fflush(stdout);

  signals.wait();
  signals.release();
  const std::chrono::seconds grace(options.server.shutdown_timeout);
  fmt::print(stderr, "ending: answers in progress get {} s, a second signal ends at once\n",
             grace.count());
  server.stop_accepting();
  engine->shutdown(grace);
  server.stop(grace);
  return 0;
}

}  // namespace mantou::cli
