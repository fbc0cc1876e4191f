// What the command line and the environment said, as plain values: one struct a group of flags.
//
// flags.h fills an Options for the verb that was named; a verb reads the groups that its flags
// belong to. An empty optional was not given: the model's generation_config.json, then the engine's
// default stands in. Made once by main, read-only afterwards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "engine/request.h"

namespace mantou::cli {

enum class Compute { kAuto, kF32 };  // kF32: activations are never quantized
enum class BackendChoice { kAuto, kCpu, kMlx };
enum class CacheType { kAuto, kF16, kBF16, kF32 };  // kAuto: f16 on cpu, the model's own on mlx
enum class CacheQuant { kOff, k8, k4, kConfig };    // kConfig: the checkpoint's kv_config.json
enum class Exact { kNo, kYes, kMixed };             // as mlx-lm; with per-layer KV as mlx-optiq
enum class TableFormat { kMarkdown, kCsv, kJson };

// generate, chat, serve, bench; `model` also inspect, fit and tokenize.
struct ModelOptions {
  std::string model;         // a path or part of a name; empty: not given
  std::string hf_repo;       // "org/name", "org/name:QUANT"; wins over model; also get
  bool offline = false;      // fetch nothing
  int64_t ctx_size = 0;      // 0: what the checkpoint was made for
  int threads = 0;           // 0: one a core
  int batch_size = 512;      // prompt tokens a step forwards at most
  int parallel = 8;          // requests that are answered at once
  int64_t cache_ram = 2048;  // MiB for the states of earlier prompts
  Compute compute = Compute::kAuto;
  BackendChoice backend = BackendChoice::kAuto;
  Exact exact = Exact::kNo;
  CacheType kv_type = CacheType::kAuto;
  CacheQuant kv_quant = CacheQuant::kOff;
  int kv_group_size = 64;
  int64_t quantized_kv_start = 0;
};

// generate, chat, serve (there: defaults of requests that do not say).
struct SamplingOptions {
  std::optional<uint64_t> seed;
  std::optional<double> temperature, top_p, min_p, xtc_probability, xtc_threshold;
  std::optional<double> repeat_penalty, presence_penalty, frequency_penalty;
  std::optional<int> top_k, repetition_context_size, repeat_last_n;
};

// generate, chat, serve (there: as above).
struct LimitOptions {
  std::optional<int> max_tokens;
  int min_tokens = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop;  // texts that end the answer
};

// generate, chat; `chat_template_kwargs` and `reasoning_format` also serve, the latter not
// generate.
struct PromptOptions {
  std::string prompt;                // generate: empty means standard input; chat: the first turn
  std::string system;                // empty: none
  bool raw = false;                  // no chat template
  std::string chat_template_kwargs;  // a JSON object, checked; empty: none
  std::string reasoning_format = "auto";
  bool stats = false;  // counts and speeds on standard error at the end
};

// chat with a model that another server has.
struct RemoteOptions {
  std::string url;      // empty: the model runs here
  std::string api_key;  // empty: none is sent
};

struct ServerOptions {
  std::string host = "127.0.0.1";  // or the path of a UNIX socket
  int port = 8080;
  int queue = 64;           // requests that may wait
  int64_t kv_memory = 0;    // MiB for the states of all requests; 0: what is free
  int64_t body_limit = 32;  // MiB
  std::string tool_format = "auto";
  std::vector<std::string> api_keys;        // each may hold several, with commas between
  std::string api_key_file;                 // none of both: no key is asked for
  std::string ssl_cert_file, ssl_key_file;  // PEM; both: TLS
  std::vector<std::string> cors_origins;    // sites whose pages may use the server
  std::vector<std::string> allowed_hosts;   // further names the server answers to
  int max_connections = 1024;
  int timeout = 30;             // seconds a client may be silent within a request or an answer
  int keep_alive_timeout = 75;  // … and between two requests
  int shutdown_timeout = 30;    // seconds for answers in progress at the end
};

// Each combination of the lists is one row of the result.
struct BenchOptions {
  std::vector<int> prompt{512};  // prompt tokens; 0: no prompt test
  std::vector<int> gen{128};     // generated tokens; 0: no generation test
  std::vector<int> depth{0};     // tokens already in the cache before the clock starts
  std::vector<int> threads{0};   // 0: one a core
  int repetitions = 5;
  TableFormat output = TableFormat::kMarkdown;
};

struct TokenizeOptions {
  std::string text;  // empty: standard input
  bool ids = false;  // token ids in, text out
  bool no_bos = false;
  bool parse_special = false;
};

struct CacheOptions {
  bool dry_run = false;  // get: only say what would come
  bool yes = false;      // gc: remove it
};

struct Options {
  ModelOptions model;
  SamplingOptions sampling;
  LimitOptions limits;
  PromptOptions prompt;
  RemoteOptions remote;
  ServerOptions server;
  BenchOptions bench;
  TokenizeOptions tokenize;
  CacheOptions cache;
  LogLevel log_level = LogLevel::kWarn;
  LogFormat log_format = LogFormat::kText;
  bool json = false;      // inspect, fit, ls, tokenize
  bool markdown = false;  // help
  std::string topic;      // help: the verb asked about
  bool help = false;      // --help was given: print the verb's help instead of running it
};

// What was given replaces what `params` and `limits` hold; the rest stays. `stop` is text and
// belongs to the text stream, not to Limits.
void apply(const SamplingOptions& options, SamplingParams& params);
void apply(const LimitOptions& options, Limits& limits);

}  // namespace mantou::cli
