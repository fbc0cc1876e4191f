// What endpoints work with: the engine, the text side and the defaults of requests that do not say.
// Made by main when the model is loaded, completed by Server::attach; shared, and read-only but for
// what the compiler of grammars and the engine do inside.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/request.h"
#include "text/chat_template.h"
#include "text/formats/formats.h"
#include "text/tokenizer.h"

namespace mantou::server {

class GrammarCompiler;

// The server's defaults; a request's own fields win.
struct RequestDefaults {
  SamplingParams sampling;
  std::optional<uint64_t> seed;            // unset: a new one each request
  Limits limits;                           // max_tokens -1: as many as the context holds
  int completion_max_tokens = 512;         // of /v1/completions, when limits.max_tokens is -1
  std::vector<std::string> stop;           // texts that end an answer
  nlohmann::ordered_json template_kwargs;  // null or an object: chat_template_kwargs
};

struct Services {
  Engine& engine;  // there until Server::stop has returned
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;
  std::string model_id;
  int64_t created = 0;  // seconds since 1970, for /v1/models
  RequestDefaults defaults;
  text::OutputFormat output_format = {};           // how the model writes reasoning and tool calls
  std::string model_path = {};                     // of its file or directory
  std::string build_info = {};                     // this program's version
  std::shared_ptr<GrammarCompiler> grammars = {};  // Server::attach makes it
  nlohmann::ordered_json template_caps = {};       // Server::attach finds them out
};

}  // namespace mantou::server
