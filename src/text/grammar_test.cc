#include "text/grammar.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "base/error.h"
#include "text/text_goldens.h"

namespace mantou::text {
namespace {
TEST(Grammar, Probe) {
  TokenizerSource source;
  source.origin = "tokenizer.json";
  source.tokenizer_json = kByteLevelJson;
  const auto tokenizer = Tokenizer::build(source);
  const auto grammar = Grammar::compile(*tokenizer, {.kind = GrammarKind::kJsonObject});
  GrammarMatcher matcher(*grammar);
  std::vector<uint32_t> words(13);
  matcher.mask(words);
  for (auto w : words) printf("%08x ", w);
  printf("\n");
}
}  // namespace
}  // namespace mantou::text
