#include "server/reply_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace mantou::server {

ReportedToken report(const text::Tokenizer& tokenizer, const GeneratedToken& token) {
  const auto choice = [&](TokenId id, float logprob) {
    return ReportedToken::Choice{std::string(tokenizer.bytes_of(id)), logprob};
  };
  ReportedToken reported{choice(token.id, token.logprob), {}};
  for (const TokenLogprob& other : token.top)
    reported.top.push_back(choice(other.id, other.logprob));
  return reported;
}

std::string random_id(std::string_view prefix) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{}{:016x}{:08x}", prefix, random(), uint32_t(random()));
}

Json usage_json(const Outcome& outcome) {
  return {{"prompt_tokens", outcome.prompt_tokens},
          {"completion_tokens", outcome.completion_tokens},
          {"total_tokens", outcome.prompt_tokens + outcome.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", outcome.cached_tokens}}}};
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

double finite_logprob(float logprob) { return std::isfinite(logprob) ? logprob : -9999.0; }

bool is_utf8(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size();) {
    const auto lead = uint8_t(bytes[i]);
    const int length = lead < 0x80           ? 1
                       : (lead >> 5) == 0x06 ? 2
                       : (lead >> 4) == 0x0e ? 3
                       : (lead >> 3) == 0x1e ? 4
                                             : 0;
    if (length == 0 || i + length > bytes.size()) return false;
    uint32_t point = length == 1 ? lead : lead & (0x7f >> length);
    for (int k = 1; k < length; ++k) {
      const auto next = uint8_t(bytes[i + k]);
      if ((next & 0xc0) != 0x80) return false;
      point = point << 6 | (next & 0x3f);
    }
    constexpr uint32_t kLowest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (point < kLowest[length] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
      return false;
    i += length;
  }
  return true;
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace mantou::server
