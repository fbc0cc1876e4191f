#include "server/reply_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "server/sse.h"

namespace mantou::server {

ReportedToken report(const text::Tokenizer& tokenizer, const GeneratedToken& token) {
  const auto choice = [&](TokenId id, float logprob) {
    return ReportedToken::Choice{id, std::string(tokenizer.bytes_of(id)), logprob};
  };
  ReportedToken reported{choice(token.id, token.logprob), {}};
  for (const TokenLogprob& other : token.top)
    reported.top.push_back(choice(other.id, other.logprob));
  return reported;
}

std::string ReplyFormat::progress_events(int64_t done, int64_t total) {
  return sse_comment(fmt::format("keepalive {}/{}", done, total));
}

std::string random_id(std::string_view prefix) {
  return fmt::format("{}{:016x}{:08x}", prefix, random_bits(), uint32_t(random_bits()));
}

Json usage_json(const Outcome& outcome) {
  Json usage = {{"prompt_tokens", outcome.prompt_tokens},
                {"completion_tokens", outcome.completion_tokens},
                {"total_tokens", outcome.prompt_tokens + outcome.completion_tokens},
                {"prompt_tokens_details", {{"cached_tokens", outcome.cached_tokens}}}};
  for (const Plan::Bypass& bypass : outcome.bypassed)
    usage["bypassed"][std::string(bypass.feature)] = bypass.reason;
  return usage;
}

Json timings_json(const Outcome& outcome) {
  const int64_t forwarded = outcome.prompt_tokens - outcome.cached_tokens;
  const int64_t decoded = std::max<int64_t>(outcome.completion_tokens - 1, 0);
  const Timings& t = outcome.timings;
  const auto rate = [](int64_t tokens, double time) {
    return time > 0 ? double(tokens) / time : 0;
  };
  const auto each = [](int64_t tokens, double time) {
    return tokens > 0 ? time * 1e3 / double(tokens) : 0;
  };
  return {{"cache_n", outcome.cached_tokens},
          {"prompt_n", forwarded},
          {"prompt_ms", t.prefill * 1e3},
          {"prompt_per_token_ms", each(forwarded, t.prefill)},
          {"prompt_per_second", rate(forwarded, t.prefill)},
          {"predicted_n", outcome.completion_tokens},
          {"predicted_ms", t.decode * 1e3},
          {"predicted_per_token_ms", each(decoded, t.decode)},
          {"predicted_per_second", rate(decoded, t.decode)},
          {"queue_ms", t.queue * 1e3}};
}

Json finite_logprob(std::optional<float> logprob) {
  if (!logprob) return nullptr;
  return std::isfinite(*logprob) ? double(*logprob) : -9999.0;
}

Json bytes_json(std::string_view bytes) {
  Json json = Json::array();
  for (const char byte : bytes) json.push_back(int(uint8_t(byte)));
  return json;
}

Json logprob_list(std::span<const ReportedToken> tokens) {
  const auto described = [](const ReportedToken::Choice& choice) -> Json {
    return {{"id", choice.id},
            {"token", choice.bytes},
            {"logprob", finite_logprob(choice.logprob)},
            {"bytes", bytes_json(choice.bytes)}};
  };
  Json list = Json::array();
  for (const ReportedToken& token : tokens) {
    list.push_back(described(token.chosen));
    Json& top = list.back()["top_logprobs"] = Json::array();
    for (const auto& other : token.top) top.push_back(described(other));
  }
  return list;
}

}  // namespace mantou::server
