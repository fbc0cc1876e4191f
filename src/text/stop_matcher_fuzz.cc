// What a StopMatcher emits and holds equals the input up to the first match, however it was cut.
#include <algorithm>
#include <cstdlib>

#include "text/stop_matcher.h"

// Input: number of sequences, then each as length and bytes; the rest is text, cut by its own
// bytes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto take = [&](size_t most) {
    const size_t value = input.empty() ? 0 : uint8_t(input[0]) % (most + 1);
    input.remove_prefix(std::min<size_t>(input.size(), 1));
    return value;
  };
  std::vector<std::string> stops;
  for (size_t n = take(4); n > 0; --n) {
    const size_t length = std::min(1 + take(7), input.size());
    if (length > 0) stops.emplace_back(input.substr(0, length));
    input.remove_prefix(length);
  }
  size_t match = std::string_view::npos;
  for (const std::string& stop : stops) match = std::min(match, input.find(stop));

  mantou::text::StopMatcher matcher(stops);
  std::string text;
  for (size_t at = 0; at < input.size();) {
    const size_t length = 1 + uint8_t(input[at]) % 5;
    text += matcher.push(input.substr(at, length));
    if (!input.starts_with(text) || text.size() > match) abort();  // nothing false, nothing early
    at += length;
  }
  text += matcher.flush();
  if (text != input.substr(0, match) || matcher.matched() != (match != std::string_view::npos))
    abort();
  if (matcher.matched() && !input.substr(match).starts_with(matcher.match())) abort();
  return 0;
}
