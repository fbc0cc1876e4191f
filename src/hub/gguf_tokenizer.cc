#include "hub/gguf_tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace mantou::hub {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";
constexpr size_t kMaxTokens = size_t{1} << 24;

std::string key(std::string_view name) { return std::string(kPrefix) + std::string(name); }

template <class T>
void check_count(const GgufFile& file, std::string_view name, const std::vector<T>& values,
                 size_t tokens) {
  if (!values.empty() && values.size() != tokens)
    fail_param(ErrorCode::kCorruptData, key(name), "{}: {} has {} elements for {} tokens",
               file.origin(), key(name), values.size(), tokens);
}

GgufVocabulary read_vocabulary(const GgufFile& file) {
  GgufVocabulary out;
  out.tokens = file.get_strings(key("tokens"));
  if (out.tokens.empty() || out.tokens.size() > kMaxTokens)
    fail_param(ErrorCode::kCorruptData, key("tokens"), "{}: {} has {} elements, must be 1 … {}",
               file.origin(), key("tokens"), out.tokens.size(), kMaxTokens);
  const auto model = file.get_string(key("model"));
  if (!model)
    fail_param(ErrorCode::kCorruptData, key("model"), "{}: metadata key \"{}\" is missing",
               file.origin(), key("model"));
  out.model = *model;
  out.pre = file.get_string(key("pre")).value_or("default");
  out.scores = file.get_floats(key("scores"));
  check_count(file, "scores", out.scores, out.tokens.size());
  for (const int64_t type : file.get_ints(key("token_type"))) {
    if (type < 0 || type > 255)
      fail_param(ErrorCode::kCorruptData, key("token_type"), "{}: {} holds {}, no token type",
                 file.origin(), key("token_type"), type);
    out.types.push_back(int32_t(type));
  }
  check_count(file, "token_type", out.types, out.tokens.size());
  out.merges = file.get_strings(key("merges"));
  out.add_space_prefix = file.get_bool(key("add_space_prefix")).value_or(true);
  return out;
}

// The id under `name`, -1 when there is none; one that is no token is an error.
int64_t token_id(const GgufFile& file, std::string_view name, size_t tokens) {
  const auto id = file.get_int(key(name));
  if (id && (*id < 0 || size_t(*id) >= tokens))
    fail_param(ErrorCode::kCorruptData, key(name), "{}: {} is {}, must be 0 … {}", file.origin(),
               key(name), *id, tokens - 1);
  return id.value_or(-1);
}

// The text of the token under `name`, for templates and information only: an id that is no token,
// which real files have, counts as absent.
std::string token_text(const GgufFile& file, std::string_view name,
                       const std::vector<std::string>& tokens) {
  const auto id = file.get_int(key(name));
  if (!id) return {};
  if (*id >= 0 && size_t(*id) < tokens.size()) return tokens[size_t(*id)];
  log_warn("token id out of range, ignored",
           {{"file", file.origin()}, {"key", key(name)}, {"id", *id}, {"tokens", tokens.size()}});
  return {};
}

void read_templates(const GgufFile& file, TokenizerSource& source) {
  constexpr std::string_view kDefault = "tokenizer.chat_template";
  source.chat_template = file.get_string(kDefault).value_or("");
  const std::string named = std::string(kDefault) + ".";
  for (const GgufValue& value : file.metadata())
    if (value.key.starts_with(named))
      source.named_templates[value.key.substr(named.size())] = *file.get_string(value.key);
}

}  // namespace

TokenizerSource gguf_tokenizer(const GgufFile& file) {
  TokenizerSource source;
  source.origin = file.origin();
  read_templates(file, source);
  if (!file.has(key("tokens"))) return source;
  const auto& tokens = source.gguf.emplace(read_vocabulary(file)).tokens;
  source.add_bos = file.get_bool(key("add_bos_token"));
  source.add_eos = file.get_bool(key("add_eos_token"));

  const auto text = [&](int64_t id) { return id < 0 ? std::string() : tokens[size_t(id)]; };
  source.bos_id = token_id(file, "bos_token_id", tokens.size());
  source.eos_id = token_id(file, "eos_token_id", tokens.size());
  source.bos_token = text(source.bos_id);
  source.eos_token = text(source.eos_id);
  source.unk_token = token_text(file, "unknown_token_id", tokens);
  source.pad_token = token_text(file, "padding_token_id", tokens);
  for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    const auto id = int32_t(token_id(file, name, tokens.size()));
    if (id >= 0 &&
        std::find(source.end_ids.begin(), source.end_ids.end(), id) == source.end_ids.end())
      source.end_ids.push_back(id);
  }
  return source;
}

}  // namespace mantou::hub
