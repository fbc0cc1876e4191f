// A request body from a stranger through the parsers of the endpoints that generate: a value within
// its limits or an Error, never anything else.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "server/endpoints/anthropic_request.h"
#include "server/endpoints/llama_fields.h"
#include "server/generation_fields.h"
#include "server/test_client.h"

namespace {

using mantou::Error;
using mantou::ErrorCode;
using mantou::server::GenerationFields;

constexpr int kVocab = 1000;
constexpr float kForbidden = -INFINITY, kMaxBias = 10'000;  // of llama-server's protocol

void check(bool condition) {
  if (!condition) std::abort();
}

void check_fields(const GenerationFields& fields) {
  const mantou::SamplingParams& s = fields.sampling;
  check(s.temperature >= 0 && s.temperature <= mantou::kMaxTemperature);
  check(s.top_p >= 0 && s.top_p <= 1 && s.min_p >= 0 && s.min_p <= 1);
  check(s.top_k >= 0 && s.min_tokens_to_keep >= 1);
  check(s.top_logprobs >= 0 && s.top_logprobs <= 20);
  check(std::isfinite(s.presence_penalty) && std::isfinite(s.frequency_penalty));
  for (const auto& [id, bias] : s.logit_bias)
    check(id >= 0 && id < kVocab && (bias == kForbidden || std::abs(bias) <= kMaxBias));
  for (const int32_t id : fields.limits.stop_token_ids) check(id >= 0 && id < kVocab);
  check(fields.limits.max_tokens == -1 || fields.limits.max_tokens >= 1);
  check(fields.stop.size() <= 16);
  for (const auto& stop : fields.stop) check(!stop.empty());
}

template <class Parse>
void try_parse(Parse parse) {
  try {
    check_fields(parse().generation);
  } catch (const Error& error) {
    check(error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kUnsupported);
    check(!error.message().empty() && error.message().size() < 2000);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  try_parse([&] { return mantou::server::parse_chat_request(body, {}, kVocab); });
  try_parse([&] { return mantou::server::parse_completion_request(body, {}, kVocab); });
  try_parse([&] {
    using mantou::server::MaxTokens;
    return mantou::server::parse_messages_request(body, {}, kVocab, MaxTokens::kUnused).chat;
  });
  try_parse([&] {
    static const mantou::server::ByteTokenizer tokenizer;
    return mantou::server::parse_llama_request(body, {}, tokenizer);
  });
  return 0;
}
