#include "server/endpoints/llama_format.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/json.h"
#include "base/utf8.h"
#include "server/api_error.h"
#include "server/sse.h"

namespace mantou::server {
namespace {

constexpr int64_t kAnySlot = -1;

Json ids(std::span<const ReportedToken> tokens) {
  Json json = Json::array();
  for (const ReportedToken& token : tokens) json.push_back(token.chosen.id);
  return json;
}

Json all_settings(const GenerationFields& fields) {
  Json json = llama_settings(fields.sampling, fields.limits);
  json["stream"] = fields.stream;
  json["dry_sequence_breakers"] = Json::array();
  json["stop"] = fields.stop;
  json["logit_bias"] = Json::array();
  for (const auto& [id, bias] : fields.sampling.logit_bias)
    json["logit_bias"].push_back(
        {{"bias", std::isfinite(bias) ? Json(bias) : Json(nullptr)}, {"token", id}});
  json["grammar"] = fields.grammar ? fields.grammar->source.text : "";
  json["grammar_lazy"] = false;
  json["grammar_triggers"] = Json::array();
  json["preserved_tokens"] = Json::array();
  return json;
}

// "a/b" of {"a": {"b": 1}}; null when there is none.
const Json* at_path(const Json& json, std::string_view path) {
  const Json* at = &json;
  while (!path.empty()) {
    const size_t slash = std::min(path.find('/'), path.size());
    const auto found = at->is_object() ? at->find(path.substr(0, slash)) : at->end();
    if (found == at->end()) return nullptr;
    at = &*found;
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return at;
}

Json picked(Json json, const std::vector<std::string>& fields) {
  if (fields.empty()) return json;
  Json some = Json::object();
  for (const std::string& field : fields)
    if (const Json* value = at_path(json, field)) some[field] = *value;
  return some;
}

std::string_view stop_type(const ChoiceState& choice) {
  return choice.end.at_limit ? "limit" : choice.end.stop.empty() ? "eos" : "word";
}

}  // namespace

Json llama_settings(const SamplingParams& sampling, const Limits& limits) {
  const double penalty = sampling.repetition_penalty;
  return {{"seed", sampling.seed},
          {"temperature", sampling.temperature},
          {"dynatemp_range", 0.0},
          {"dynatemp_exponent", 1.0},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p > 0 ? sampling.top_p : 1.0},
          {"min_p", sampling.min_p},
          {"top_n_sigma", -1.0},
          {"xtc_probability", sampling.xtc_probability},
          {"xtc_threshold", sampling.xtc_threshold},
          {"typical_p", 1.0},
          {"repeat_last_n", sampling.repetition_context > 0 ? sampling.repetition_context : -1},
          {"repeat_penalty", penalty > 0 ? penalty : 1.0},
          {"presence_penalty", sampling.presence_penalty},
          {"frequency_penalty", sampling.frequency_penalty},
          {"dry_multiplier", 0.0},
          {"dry_base", 1.75},
          {"dry_allowed_length", 2},
          {"dry_penalty_last_n", 0},
          {"mirostat", 0},
          {"mirostat_tau", 5.0},
          {"mirostat_eta", 0.1},
          {"adaptive_target", -1.0},
          {"adaptive_decay", 0.9},
          {"max_tokens", limits.max_tokens},
          {"n_predict", limits.max_tokens},
          {"n_keep", 0},
          {"n_discard", 0},
          {"ignore_eos", limits.ignore_eos},
          {"stream", false},
          {"n_probs", sampling.top_logprobs},
          {"min_keep", sampling.min_tokens_to_keep},
          {"chat_format", "Content-only"},
          {"reasoning_format", "none"},
          {"reasoning_in_content", false},
          {"generation_prompt", ""},
          {"samplers", {"penalties", "top_p", "min_p", "xtc", "top_k", "temperature"}},
          {"speculative.types", "none"},
          {"timings_per_token", false},
          {"post_sampling_probs", false},
          {"backend_sampling", false},
          {"lora", Json::array()}};
}

LlamaFormat::LlamaFormat(const LlamaRequest& request, std::string model, std::string prompt_text)
    : stream_(request.generation.stream),
      probs_(request.n_probs > 0),
      return_tokens_(request.return_tokens),
      return_progress_(request.return_progress),
      timings_per_token_(request.timings_per_token),
      prompt_tokens_(int64_t(request.prompt.size())),
      response_fields_(request.response_fields),
      model_(std::move(model)),
      prompt_text_(std::move(prompt_text)),
      settings_([&] {
        Json settings = all_settings(request.generation);
        settings["timings_per_token"] = request.timings_per_token;
        return settings;
      }()) {}

void LlamaFormat::admitted(const Admission& admission) {
  cached_tokens_ = admission.cached_tokens;
  admitted_ = Clock::now();
}

std::string LlamaFormat::first_events(int choices) {
  progress_.resize(size_t(choices));
  return return_progress_ ? progress_events(cached_tokens_, prompt_tokens_) : std::string();
}

std::string LlamaFormat::progress_events(int64_t done, int64_t total) {
  if (!return_progress_) return ReplyFormat::progress_events(done, total);
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - admitted_);
  Json json = part(0, "", Json::array(), 0);
  json["prompt_progress"] = {
      {"total", total}, {"cache", cached_tokens_}, {"processed", done}, {"time_ms", time.count()}};
  return sse_event(to_text(json));
}

std::string LlamaFormat::delta_events(const ChoiceState& choice,
                                      std::span<const text::OutputEvent> delta,
                                      std::span<const ReportedToken> tokens) {
  std::string content;
  for (const text::OutputEvent& event : delta) content += event.text;
  Progress& progress = progress_[size_t(choice.index)];
  if (progress.tokens == 0) progress.first = Clock::now();
  progress.tokens += int64_t(tokens.size());
  Json json = part(choice.index, content, ids(tokens), progress.tokens);
  if (timings_per_token_) json["timings"] = timings_now(progress);
  if (probs_ && !tokens.empty()) json["completion_probabilities"] = logprob_list(tokens);
  return sse_event(to_text(json));
}

std::string LlamaFormat::choice_end_events(const ChoiceState& choice, const Outcome*) {
  return sse_event(to_text(picked(final_json(choice), response_fields_)));
}

std::string LlamaFormat::reply(std::span<const ChoiceState> choices, const Outcome&) {
  Json all = Json::array();
  for (const ChoiceState& choice : choices)
    all.push_back(picked(final_json(choice), response_fields_));
  return to_text(all.size() == 1 ? all[0] : all);
}

std::string LlamaFormat::error_events(const Error& error) {
  return sse_event(error_json(error, {Protocol::kLlama}));
}

Json LlamaFormat::part(int index, std::string_view content, Json tokens, int64_t predicted) const {
  return {{"index", index},
          {"content", content},
          {"tokens", std::move(tokens)},
          {"stop", false},
          {"id_slot", kAnySlot},
          {"tokens_predicted", predicted},
          {"tokens_evaluated", prompt_tokens_}};
}

// The last object of a stream repeats no text.
Json LlamaFormat::final_json(const ChoiceState& choice) const {
  const Outcome& outcome = choice.outcome;
  Json json = {{"index", choice.index},
               {"content", stream_ ? "" : choice.content},
               {"tokens", return_tokens_ && !stream_ ? ids(choice.tokens) : Json::array()},
               {"id_slot", kAnySlot},
               {"stop", true},
               {"model", model_},
               {"tokens_predicted", outcome.completion_tokens},
               {"tokens_evaluated", outcome.prompt_tokens},
               {"generation_settings", settings_},
               {"prompt", prompt_text_},
               {"has_new_line", choice.content.find('\n') != std::string::npos},
               {"truncated", choice.end.context_full},
               {"stop_type", stop_type(choice)},
               {"stopping_word", choice.end.stop},
               // The last token's state is never computed.
               {"tokens_cached",
                outcome.prompt_tokens + std::max<int64_t>(outcome.completion_tokens, 1) - 1},
               {"timings", timings_json(outcome)}};
  json["generation_settings"]["seed"] = settings_["seed"].get<uint64_t>() + uint64_t(choice.index);
  if (probs_ && !stream_) json["completion_probabilities"] = logprob_list(choice.tokens);
  return json;
}

Json LlamaFormat::timings_now(const Progress& progress) const {
  const auto seconds = [](Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  };
  Outcome so_far;
  so_far.prompt_tokens = prompt_tokens_;
  so_far.cached_tokens = cached_tokens_;
  so_far.completion_tokens = progress.tokens;
  so_far.timings.prefill = seconds(progress.first - admitted_);
  so_far.timings.decode = seconds(Clock::now() - progress.first);
  return timings_json(so_far);
}

}  // namespace mantou::server
