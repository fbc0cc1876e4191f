// Any settings and any logits end in a token of the vocabulary or in an Error.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "sampling/sampler.h"

namespace {

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  template <class T>
  T take() {
    T value{};
    const size_t n = std::min(sizeof value, size_);
    if (n > 0) std::memcpy(&value, data_, n);
    data_ += n;
    size_ -= n;
    return value;
  }
  // Mostly a sensible setting, sometimes any double at all.
  double setting(double high) {
    const auto byte = take<uint8_t>();
    return byte < 8 ? take<double>() : byte < 100 ? 0 : high * byte / 255;
  }
  size_t left() const { return size_; }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mantou;
  Bytes bytes(data, size);
  SamplingParams params;
  Limits limits;
  params.temperature = bytes.setting(2);
  params.top_p = bytes.setting(1);
  params.min_p = bytes.setting(1);
  params.top_k = bytes.take<int8_t>();
  params.min_tokens_to_keep = 1 + bytes.take<uint8_t>() % 4;
  params.xtc_probability = bytes.setting(1);
  params.xtc_threshold = bytes.setting(0.5);
  params.repetition_penalty = bytes.setting(2);
  params.repetition_context = bytes.take<int8_t>();
  params.presence_penalty = bytes.setting(2);
  params.frequency_penalty = bytes.setting(2);
  params.logit_bias[bytes.take<int8_t>()] = bytes.take<float>();
  params.top_logprobs = bytes.take<uint8_t>() % 24;
  params.seed = bytes.take<uint64_t>();
  limits.min_tokens = bytes.take<int8_t>();
  const bool masked = bytes.take<uint8_t>() % 2 == 1;
  std::vector<uint32_t> allowed(masked ? 3 : 0);
  for (uint32_t& word : allowed) word = bytes.take<uint32_t>();
  std::vector<TokenId> history(bytes.take<uint8_t>());
  for (TokenId& id : history) id = bytes.take<int8_t>();

  std::vector<float> logits(std::min<size_t>(1 + bytes.left() / 2, 4000));
  for (float& logit : logits) {
    const auto raw = bytes.take<int16_t>();
    logit = raw == INT16_MIN ? -HUGE_VALF : raw == INT16_MAX ? NAN : float(raw) / 512;
  }
  const std::vector<float> original = logits;
  const TokenId end = 1;
  try {
    Sampler sampler(params, limits, {&end, 1}, int(logits.size()));
    for (int64_t step = 0; step < 3; ++step) {
      logits = original;
      const GeneratedToken token = sampler.sample(logits, history, step, allowed);
      if (token.id < 0 || size_t(token.id) >= logits.size()) std::abort();
      if (!(logits[size_t(token.id)] > -HUGE_VALF)) std::abort();
      if (token.top.size() > size_t(params.top_logprobs)) std::abort();
    }
  } catch (const Error&) {
  }
  return 0;
}
