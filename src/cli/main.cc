// The program: finds the verb, reads its options, runs it, turns an Error into one line.
#include <fmt/format.h>

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "cli/verbs/verbs.h"

namespace mantou::cli {
namespace {

constexpr int kExitFailure = 1, kExitUsage = 2;

// A message may quote a file's or a server's words; a terminal must not obey them.
void report(std::string message) {
  for (char& c : message)
    if ((c >= 0 && c < ' ') || c == 0x7f) c = ' ';
  fmt::print(stderr, "mantou: {}\n", message);
}

// Weights are mapped from their file while they are read. When another program shortens the file in
// that time, reading what is gone raises SIGBUS.
void report_lost_mapping(int) {
  constexpr std::string_view kMessage =
      "mantou: a file in use (a model or a library) is shorter than it was: restart with the whole "
      "file\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
  ::_exit(kExitFailure);
}

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

int run(std::vector<std::string> args) {
  if (!args.empty() && (args[0] == "--help" || args[0] == "-h")) args[0] = "help";
  if (!args.empty() && args[0] == "--version") args[0] = "version";
  const bool named = !args.empty() && !args[0].starts_with('-');
  const Verb& verb = find_verb(named ? args[0] : "serve");
  const auto rest = std::span<const std::string>(args).subspan(named ? 1 : 0);
  const Options options = parse(verb, rest, process_environment);
  if (options.help) {
    fmt::print("{}", help_verb(verb));
    return 0;
  }
  set_log_level(options.log_level);
  set_log_format(options.log_format);
  // A server outlives whoever reads its output; the other verbs end quietly with their reader.
  if (verb.bit == kServe) std::signal(SIGPIPE, SIG_IGN);
  return verb.run(options);
}

}  // namespace
}  // namespace mantou::cli

int main(int argc, char** argv) {
  using namespace mantou;
  std::signal(SIGBUS, cli::report_lost_mapping);
  // Errors of the Rust crates are caught; where they came from would be looked up under locks.
  ::setenv("RUST_LIB_BACKTRACE", "0", 1);
  try {
    const int code = cli::run({argv + 1, argv + argc});
    if (std::fflush(stdout) != 0)
      fail(ErrorCode::kIo, "cannot write the output: {}", std::strerror(errno));
    if (std::ferror(stdout) != 0)
      fail(ErrorCode::kIo, "cannot write the output");  // noticed by a flush before
    return code;
  } catch (const Error& error) {
    cli::report(error.message());
    return error.code() == ErrorCode::kInvalidArgument ? cli::kExitUsage : cli::kExitFailure;
  } catch (const std::exception& error) {
    cli::report(error.what());
    return cli::kExitFailure;
  }
}
