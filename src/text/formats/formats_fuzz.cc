// How a text is cut does not change what is made of it, whatever the text and the format.
#include <algorithm>
#include <cstdlib>

#include "text/formats/formats_test_support.h"

// Input: a byte for the formats, a byte for the cuts, the text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mantou::text;
  static const char* const kTools[] = {"none",    "hermes", "qwen3-coder", "llama3",
                                       "mistral", "gemma",  "minicpm"};
  static const char* const kReasoning[] = {"none", "think", "gemma-channel", "mistral"};
  if (size < 2) return 0;
  const unsigned choice = data[0];
  const ParserSetup setup{
      .format = {.tools = kTools[choice % 7], .reasoning = kReasoning[choice / 7 % 4]},
      .in_reasoning = choice / 28 % 2 == 1};
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  unsigned state = data[1];
  const auto next = [&] {
    state = state * 1103515245 + 12345;
    return 1 + (state >> 16) % 7;
  };
  const auto whole = parse_whole(setup, text);
  if (parse_pieces(setup, text, next) != whole) abort();
  if (parse_pieces(setup, text, [] { return 1; }) != whole) abort();
  return 0;
}
