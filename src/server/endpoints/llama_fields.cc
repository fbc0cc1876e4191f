#include "server/endpoints/llama_fields.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "server/refused_fields.h"

namespace mantou::server {
namespace {

// llama-server's samplers in its order; the field and value that turn one off, where it exists
// here.
struct KnownSampler {
  std::string_view name;
  std::string field = {};
  int off = 0;
};
const KnownSampler kSamplers[] = {{"penalties", "repeat_last_n", 0},
                                  {"dry"},
                                  {"top_n_sigma"},
                                  {"top_k", "top_k", 0},
                                  {"typ_p"},
                                  {"top_p", "top_p", 1},
                                  {"min_p", "min_p", 0},
                                  {"xtc", "xtc_probability", 0},
                                  {"temperature", "temperature", 1}};

// Those that are not named are off. The order is always that of docs/sampling.md, so that only
// llama-server's own is taken.
void apply_samplers(Json& body) {
  const Fields fields(body);
  std::vector<std::string> names;
  if (!fields.read_strings("samplers", names, std::size(kSamplers))) return;
  auto name = names.begin();
  for (const KnownSampler& sampler : kSamplers) {
    if (name != names.end() && *name == sampler.name) {
      ++name;
    } else if (!sampler.field.empty()) {
      body[sampler.field] = sampler.off;
    }
  }
  if (name != names.end())
    fail_param(ErrorCode::kUnsupported, "samplers",
               "'samplers' must be some of penalties, dry, top_n_sigma, top_k, typ_p, top_p, "
               "min_p, xtc, temperature, in this order: it cannot be changed (at {})",
               shortened(*name));
}

// n_predict before its other names; 0 writes one token, as llama-server does, -2 is "until the
// context is full", which -1 is here, too.
void apply_limit(Json& body) {
  int limit = 0;
  if (!Fields(body).read("n_predict", limit, -2, INT_MAX)) {
    body.erase("n_predict");
    return;
  }
  for (const char* other : {"max_tokens", "max_completion_tokens"}) body.erase(other);
  body["n_predict"] = limit < 0 ? -1 : std::max(limit, 1);
}

// One window for all three penalties; 0 turns them off.
void apply_window(Json& body) {
  int window = 0;
  if (!Fields(body).read("repeat_last_n", window, -1, INT_MAX)) return;
  if (window == 0) {
    for (const char* penalty : {"repeat_penalty", "presence_penalty", "frequency_penalty"})
      body[penalty] = 0;
    return;
  }
  for (const char* size :
       {"repetition_context_size", "presence_context_size", "frequency_context_size"})
    body[size] = std::max(window, 0);
}

// Other spellings of what the shared fields say.
void apply_spellings(Json& body) {
  const Fields fields(body);
  int64_t seed = 0;
  if (fields.read("seed", seed, INT64_MIN, INT64_MAX) && (seed == -1 || seed == UINT32_MAX))
    body.erase("seed");  // a new one
  double threshold = 0;
  if (fields.read("xtc_threshold", threshold, 0, 1) && threshold > kMaxXtcThreshold) {
    body.erase("xtc_threshold");
    body["xtc_probability"] = 0;  // no two tokens are above it
  }
  int keep = 0;
  if (fields.read("min_keep", keep, 0, INT_MAX)) body["min_tokens_to_keep"] = std::max(keep, 1);
  int choices = 0;
  if (fields.read("n_cmpl", choices, 1, kMaxChoices)) body["n"] = choices;
  const auto stop = body.find("stop");
  if (stop == body.end()) return;
  if (stop->is_string() && stop->get_ref<const std::string&>().empty()) *stop = nullptr;
  if (stop->is_array()) stop->erase(std::remove(stop->begin(), stop->end(), Json("")), stop->end());
}

float bias_of(const Json& value) {
  if (value == false) return -INFINITY;
  const double bias = value.is_number() ? value.get<double>() : INFINITY;
  if (!(std::abs(bias) <= kMaxLlamaBias))
    Fields::wrong("logit_bias",
                  fmt::format("made of numbers from -{0} to {0}, or false for what is forbidden",
                              kMaxLlamaBias),
                  value);
  return float(bias);
}

// Of the token, or of every token of the text.
void add_bias(const Json& token, float bias, const text::Tokenizer& tokenizer,
              std::map<TokenId, float>& biases) {
  for (const TokenId id : read_tokens(token.is_number() ? Json::array({token}) : token,
                                      "logit_bias", tokenizer, {.add_special = false}))
    biases[id] = bias;
}

// [[token id or text, bias or false], …], or an object of them.
std::map<TokenId, float> take_logit_bias(Json& body, const text::Tokenizer& tokenizer) {
  std::map<TokenId, float> biases;
  const Json given = body.value("logit_bias", Json());
  body.erase("logit_bias");
  if (given.is_object()) {
    for (const auto& [key, value] : given.items()) {
      TokenId id = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      const bool is_id = error == std::errc() && end == key.data() + key.size();
      add_bias(is_id ? Json(id) : Json(key), bias_of(value), tokenizer, biases);
    }
  } else if (given.is_array()) {
    for (const Json& pair : given) {
      if (!pair.is_array() || pair.size() != 2)
        Fields::wrong("logit_bias", "an array of pairs [token id or text, bias or false]", pair);
      add_bias(pair[0], bias_of(pair[1]), tokenizer, biases);
    }
  } else if (!given.is_null()) {
    Fields::wrong("logit_bias", "an array of pairs or an object", given);
  }
  return biases;
}

std::vector<TokenId> read_prompt(const Json& prompt, const text::Tokenizer& tokenizer) {
  const auto is_text = [](const Json& value) { return value.is_string(); };
  const auto is_array = [](const Json& value) { return value.is_array(); };
  if (prompt.is_array() && !prompt.empty() &&
      (std::all_of(prompt.begin(), prompt.end(), is_text) ||
       std::any_of(prompt.begin(), prompt.end(), is_array))) {
    if (prompt.size() == 1) return read_prompt(prompt[0], tokenizer);
    fail_param(ErrorCode::kUnsupported, "prompt",
               "'prompt' holds {} prompts: send a request for each", prompt.size());
  }
  if (prompt.is_object()) {
    const Fields fields(prompt, "prompt");
    const Json* media = fields.find("multimodal_data");
    if (media != nullptr && !(media->is_array() && media->empty()))
      fail_param(ErrorCode::kUnsupported, "prompt.multimodal_data",
                 "'prompt.multimodal_data' is not supported: only text is available");
    if (const Json* text = fields.find("prompt_string")) return read_prompt(*text, tokenizer);
  }
  return read_tokens(prompt, "prompt", tokenizer, {.add_special = true, .add_eos = false});
}

}  // namespace

std::vector<TokenId> read_tokens(const Json& value, const std::string& name,
                                 const text::Tokenizer& tokenizer,
                                 const text::Tokenizer::EncodeOptions& options) {
  if (value.is_string()) return tokenizer.encode(value.get_ref<const std::string&>(), options);
  if (!value.is_array()) Fields::wrong(name, "a text or an array of token ids and texts", value);
  std::vector<TokenId> ids;
  text::Tokenizer::EncodeOptions each = options;
  for (const Json& part : value) {
    if (part.is_string()) {
      const auto more = tokenizer.encode(part.get_ref<const std::string&>(), each);
      ids.insert(ids.end(), more.begin(), more.end());
    } else if (const auto id = integer_of(part); id && *id >= 0 && *id < tokenizer.vocab_size()) {
      ids.push_back(TokenId(*id));
    } else {
      Fields::wrong(fmt::format("{}[{}]", name, &part - &value[0]),
                    fmt::format("a text or a token id from 0 to {}", tokenizer.vocab_size() - 1),
                    part);
    }
    each.add_special = false;
  }
  return ids;
}

LlamaRequest parse_llama_request(std::string_view text, const RequestDefaults& defaults,
                                 const text::Tokenizer& tokenizer) {
  Json body = parse_json(text);
  const Fields fields(body);
  LlamaRequest request;
  const auto prompt = body.find("prompt");
  if (prompt == body.end() || prompt->is_null())
    fail_param(ErrorCode::kInvalidArgument, "prompt", "'prompt' is required");
  request.prompt = read_prompt(*prompt, tokenizer);

  refuse_in_llama_completion(fields);
  apply_samplers(body);
  apply_limit(body);
  apply_window(body);
  apply_spellings(body);
  std::map<TokenId, float> biases = take_logit_bias(body, tokenizer);
  request.generation = read_generation_fields(fields, defaults, tokenizer.vocab_size());
  if (!biases.empty()) request.generation.sampling.logit_bias = std::move(biases);

  fields.read("n_probs", request.n_probs, 0, kMaxTopLogprobs);
  fields.read("return_tokens", request.return_tokens);
  fields.read("return_progress", request.return_progress);
  fields.read("timings_per_token", request.timings_per_token);
  fields.read_strings("response_fields", request.response_fields, kMaxResponseFields);
  SamplingParams& sampling = request.generation.sampling;
  sampling.logprobs = request.n_probs > 0;
  sampling.top_logprobs = request.n_probs;
  request.generation.token_ids = request.return_tokens || request.generation.stream;
  return request;
}

}  // namespace mantou::server
