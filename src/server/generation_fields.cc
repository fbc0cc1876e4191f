#include "server/generation_fields.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "server/refused_fields.h"
#include "server/tool_fields.h"

namespace mantou::server {
namespace {

// best_of: every answer is given, none is chosen.
void require_best_of_n(const Fields& fields, int choices) {
  int count = choices;
  fields.read("best_of", count, 1, INT_MAX);
  if (count != choices)
    fail_param(ErrorCode::kUnsupported, "best_of",
               "'best_of' must be 'n' ({}): all answers are given, not the best of {}", choices,
               count);
}

void read_logit_bias(const Fields& fields, std::map<TokenId, float>& bias, int vocab_size) {
  const Json* value = fields.find("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object()) Fields::wrong("logit_bias", "an object of token id to number", *value);
  bias.clear();
  for (const auto& [key, number] : value->items()) {
    TokenId id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab_size)
      fail_param(ErrorCode::kInvalidArgument, "logit_bias",
                 "the keys of 'logit_bias' must be token ids from 0 to {}, not {}", vocab_size - 1,
                 shortened(key));
    const double amount = number.is_number() ? number.get<double>() : INFINITY;
    if (!(std::abs(amount) <= kMaxBias))
      Fields::wrong("logit_bias." + key, fmt::format("a number from -{0} to {0}", kMaxBias),
                    number);
    bias[id] = float(amount);
  }
}

void read_seed(const Fields& fields, const RequestDefaults& defaults, uint64_t& seed) {
  seed = defaults.seed ? *defaults.seed : random_bits();
  const Json* value = fields.find("seed");
  if (value == nullptr) return;
  if (!value->is_number_integer()) Fields::wrong("seed", "an integer", *value);
  seed = value->is_number_unsigned() ? value->get<uint64_t>() : uint64_t(value->get<int64_t>());
}

void read_sampling(const Fields& fields, SamplingParams& s) {
  fields.read("temperature", s.temperature, 0, kMaxTemperature);
  fields.read("top_p", s.top_p, 0, 1);
  fields.read("top_k", s.top_k, -1, INT_MAX);
  s.top_k = std::max(s.top_k, 0);  // -1 is another spelling of "off"
  fields.read("min_p", s.min_p, 0, 1);
  fields.read("min_tokens_to_keep", s.min_tokens_to_keep, 1, INT_MAX);
  fields.read("xtc_probability", s.xtc_probability, 0, 1);
  fields.read("xtc_threshold", s.xtc_threshold, 0, kMaxXtcThreshold);
  // Of two names for one thing the later one counts; both are checked.
  for (const std::string_view name : {"repeat_penalty", "repetition_penalty"})
    fields.read(name, s.repetition_penalty, 0, kMaxRepetitionPenalty);
  int window = 0;
  const bool has_window = fields.read("repeat_last_n", window, -1, INT_MAX);
  if (!fields.read("repetition_context_size", s.repetition_context, 0, INT_MAX) && has_window)
    set_repeat_last_n(s, window);
  fields.read("presence_penalty", s.presence_penalty, -kMaxPenalty, kMaxPenalty);
  fields.read("presence_context_size", s.presence_context, 0, INT_MAX);
  fields.read("frequency_penalty", s.frequency_penalty, -kMaxPenalty, kMaxPenalty);
  fields.read("frequency_context_size", s.frequency_context, 0, INT_MAX);
}

// -1: as many as the context holds.
void read_max_tokens(const Fields& fields, std::string_view name, int least, int& max_tokens) {
  const Json* value = fields.find(name);
  if (value != nullptr && integer_of(*value) == -1)
    max_tokens = -1;
  else
    fields.read(name, max_tokens, least, INT_MAX);
}

void read_limits(const Fields& fields, Limits& limits, int least_tokens, int vocab_size) {
  for (const std::string_view name : {"n_predict", "max_tokens", "max_completion_tokens"})
    read_max_tokens(fields, name, least_tokens, limits.max_tokens);
  const bool asked = fields.read("min_tokens", limits.min_tokens, 0, INT_MAX);
  if (limits.max_tokens >= 0 && !asked)  // a default gives way to what the request says
    limits.min_tokens = std::min(limits.min_tokens, limits.max_tokens);
  if (limits.max_tokens >= 0 && limits.min_tokens > limits.max_tokens)
    fail_param(ErrorCode::kInvalidArgument, "min_tokens",
               "'min_tokens' ({}) must not be more than the answer's limit of {} tokens",
               limits.min_tokens, limits.max_tokens);
  fields.read("ignore_eos", limits.ignore_eos);
  fields.read_integers("stop_token_ids", limits.stop_token_ids, kMaxStopTokens, 0, vocab_size - 1);
}

void read_stream(const Fields& fields, GenerationFields& out) {
  fields.read("stream", out.stream);
  const Json* options = fields.find("stream_options");
  if (options == nullptr) return;
  const Fields inner(*options, "stream_options");
  if (!out.stream)
    fail_param(ErrorCode::kInvalidArgument, "stream_options",
               "'stream_options' is only allowed together with \"stream\": true");
  inner.read("include_usage", out.include_usage);
}

// -1, mlx-lm's default, asks for none.
void read_top_logprobs(const Fields& fields, SamplingParams& sampling) {
  fields.read("top_logprobs", sampling.top_logprobs, -1, kMaxTopLogprobs);
  sampling.top_logprobs = std::max(sampling.top_logprobs, 0);
}

void read_chat_logprobs(const Fields& fields, SamplingParams& sampling) {
  sampling.logprobs = false;
  sampling.top_logprobs = 0;
  fields.read("logprobs", sampling.logprobs);
  read_top_logprobs(fields, sampling);
  if (sampling.top_logprobs > 0 && !sampling.logprobs)
    fail_param(ErrorCode::kInvalidArgument, "top_logprobs",
               "'top_logprobs' is only allowed together with \"logprobs\": true");
}

// The legacy form: the number of alternatives; 0 asks for the chosen tokens' own values. True is
// mlx-lm's form.
void read_legacy_logprobs(const Fields& fields, CompletionRequest& request) {
  SamplingParams& sampling = request.generation.sampling;
  sampling.top_logprobs = 0;
  read_top_logprobs(fields, sampling);
  const Json* value = fields.find("logprobs");
  request.logprob_list = value != nullptr && *value == true;
  if (!request.logprob_list) sampling.top_logprobs = 0;
  if (value != nullptr && value->is_boolean())
    sampling.logprobs = request.logprob_list;
  else
    sampling.logprobs = fields.read("logprobs", sampling.top_logprobs, 0, kMaxTopLogprobs);
}

std::vector<TokenId> token_ids(const Json& list, const std::string& field, int vocab_size) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < list.size(); i++) {
    const std::optional<int64_t> id = integer_of(list[i]);
    if (!id || *id < 0 || *id >= vocab_size)
      Fields::wrong(fmt::format("{}[{}]", field, i),
                    fmt::format("a token id from 0 to {}", vocab_size - 1), list[i]);
    ids.push_back(TokenId(*id));
  }
  return ids;
}

// A text, token ids, or a list of these.
std::vector<CompletionRequest::Prompt> read_prompts(const Fields& fields, int vocab_size) {
  const Json* const prompt = fields.find("prompt");
  if (prompt == nullptr) fail_param(ErrorCode::kInvalidArgument, "prompt", "'prompt' is required");
  std::vector<CompletionRequest::Prompt> prompts;
  const auto add = [&](const Json& value, std::string field) {
    if (!value.is_string() && !value.is_array())
      Fields::wrong(field, "a text or an array of token ids", value);
    if (value.is_string() ? value.get_ref<const std::string&>().empty() : value.empty())
      fail_param(ErrorCode::kInvalidArgument, field, "'{}' must not be empty", field);
    if (value.is_string())
      prompts.push_back({std::move(field), value.get<std::string>(), {}});
    else
      prompts.push_back({field, {}, token_ids(value, field, vocab_size)});
  };
  const bool is_list = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  if (!is_list) {
    add(*prompt, "prompt");
    return prompts;
  }
  if (prompt->size() > size_t(kMaxPrompts))
    fail_param(ErrorCode::kInvalidArgument, "prompt",
               "'prompt' holds {} prompts, must be {} at most", prompt->size(), kMaxPrompts);
  for (size_t i = 0; i < prompt->size(); i++) add((*prompt)[i], fmt::format("prompt[{}]", i));
  return prompts;
}

// Each answer is a row with a prompt of its own.
void limit_answers(const CompletionRequest& request) {
  const size_t answers = request.prompts.size() * size_t(request.generation.choices);
  if (answers > size_t(kMaxAnswers))
    fail_param(ErrorCode::kInvalidArgument, "n",
               "'n' asks for {} answers to each of {} prompts, must be {} at most together",
               request.generation.choices, request.prompts.size(), kMaxAnswers);
}

// An echoed prompt has logprobs as the answer has.
void read_echo(const Fields& fields, GenerationFields& generation) {
  fields.read("echo", generation.echo);
  const SamplingParams& sampling = generation.sampling;
  if (generation.echo && sampling.logprobs) generation.scores = {sampling.top_logprobs};
}

// A template knows its own default; "max" is what Anthropic's clients call the most.
void read_effort(const Fields& fields, text::ChatOptions& chat) {
  std::string effort;
  if (!fields.read("reasoning_effort", effort) || effort == "auto" || effort == "default") return;
  constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
  if (effort == "max") effort = "xhigh";
  if (std::ranges::find(kEfforts, effort) == std::end(kEfforts))
    Fields::wrong("reasoning_effort", "none, minimal, low, medium, high, xhigh or max", effort);
  chat.extra["reasoning_effort"] = effort;
  if (effort == "none") chat.extra["enable_thinking"] = false;
}

void read_template_options(const Fields& fields, const RequestDefaults& defaults,
                           text::ChatOptions& chat) {
  chat.extra = defaults.template_kwargs;
  read_effort(fields, chat);
  if (const Json* kwargs = fields.find("chat_template_kwargs")) {
    const Fields must_be_object(*kwargs, "chat_template_kwargs");
    for (const auto& [key, value] : kwargs->items()) chat.extra[key] = value;
  }
  fields.read("continue_final_message", chat.continue_final_message);
  chat.add_generation_prompt = !chat.continue_final_message;
  fields.read("add_generation_prompt", chat.add_generation_prompt);
  if (chat.add_generation_prompt && chat.continue_final_message)
    fail_param(ErrorCode::kInvalidArgument, "continue_final_message",
               "'continue_final_message' and 'add_generation_prompt' exclude each other");
}

}  // namespace

GenerationFields read_generation_fields(const Fields& fields, const RequestDefaults& defaults,
                                        int vocab_size, int least_tokens) {
  refuse_everywhere(fields);
  GenerationFields out;
  out.sampling = defaults.sampling;
  out.limits = defaults.limits;
  out.stop = defaults.stop;
  read_sampling(fields, out.sampling);
  read_seed(fields, defaults, out.sampling.seed);
  read_logit_bias(fields, out.sampling.logit_bias, vocab_size);
  read_limits(fields, out.limits, least_tokens, vocab_size);
  // A hint: true allows to start from kept state and asks for none; the answer is the same.
  fields.read("cache_prompt", out.cache.reuse);
  fields.read_strings("stop", out.stop, kMaxStops);
  read_stream(fields, out);
  fields.read("n", out.choices, 1, kMaxChoices);
  out.grammar = read_grammar(fields);
  return out;
}

const Json& read_messages(const Fields& fields) {
  const Json* messages = fields.find("messages");
  if (messages == nullptr)
    fail_param(ErrorCode::kInvalidArgument, "messages", "'messages' is required");
  if (!messages->is_array() || messages->empty())
    Fields::wrong("messages", "an array of at least one message", *messages);
  for (size_t i = 0; i < messages->size(); ++i) {
    const Fields message((*messages)[i], fmt::format("messages[{}]", i));
    std::string role;
    if (!message.read("role", role))
      fail_param(ErrorCode::kInvalidArgument, message.path_of("role"), "'{}' is required",
                 message.path_of("role"));
  }
  return *messages;
}

ChatRequest parse_chat_request(std::string_view body, const RequestDefaults& defaults,
                               int vocab_size) {
  const Json parsed = parse_json(body);
  const Fields fields(parsed);
  ChatRequest request;
  request.messages = read_messages(fields);
  const Json* roles = fields.find("role_mapping");
  request.maps_roles = roles != nullptr && !is_off(*roles);
  refuse_in_chat(fields);
  request.generation = read_generation_fields(fields, defaults, vocab_size);
  read_chat_logprobs(fields, request.generation.sampling);
  read_tools(fields, request);
  read_template_options(fields, defaults, request.chat);
  return request;
}

CompletionRequest parse_completion_request(std::string_view body, const RequestDefaults& defaults,
                                           int vocab_size) {
  const Json parsed = parse_json(body);
  const Fields fields(parsed);
  CompletionRequest request;
  request.prompts = read_prompts(fields, vocab_size);
  refuse_in_completion(fields);
  RequestDefaults legacy = defaults;
  if (legacy.limits.max_tokens < 0)
    legacy.limits.max_tokens = std::max(defaults.completion_max_tokens, legacy.limits.min_tokens);
  request.generation = read_generation_fields(fields, legacy, vocab_size, /*least_tokens=*/0);
  limit_answers(request);
  read_legacy_logprobs(fields, request);
  read_echo(fields, request.generation);
  require_best_of_n(fields, request.generation.choices);
  return request;
}

}  // namespace mantou::server
