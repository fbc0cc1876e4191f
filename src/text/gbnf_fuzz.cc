// Any bytes as a grammar in llama.cpp's notation: an Error or a Lark grammar, never anything else.
// What was converted is compiled, and a few masks of it are asked for.

#include <fmt/format.h>

#include <cstdlib>

#include "base/error.h"
#include "text/gbnf.h"
#include "text/grammar.h"

namespace {

using namespace mantou;
using namespace mantou::text;

// All bytes as tokens, one special token and an end.
std::shared_ptr<const Tokenizer> make_tokenizer() {
  TokenizerSource source;
  source.origin = "fuzz";
  GgufVocabulary& vocabulary = source.gguf.emplace();
  vocabulary.model = "llama";
  vocabulary.tokens = {"<unk>", "<s>", "</s>"};
  vocabulary.types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.push_back(fmt::format("<0x{:02X}>", byte));
    vocabulary.types.push_back(6);
  }
  vocabulary.scores.assign(vocabulary.tokens.size(), 0.0f);
  source.eos_id = 2;
  return Tokenizer::build(source);
}

void walk(const Tokenizer& tokenizer, std::string_view gbnf) {
  const auto grammar =
      Grammar::compile(tokenizer, {.kind = GrammarKind::kGbnf, .text = std::string(gbnf)});
  GrammarMatcher matcher(*grammar);
  std::vector<uint32_t> mask((size_t(tokenizer.vocab_size()) + 31) / 32);
  for (int step = 0; step < 6 && !matcher.is_stopped(); ++step) {
    matcher.mask(mask);
    TokenId id = 0;
    while (!(mask[size_t(id) / 32] >> (id % 32) & 1))
      if (++id >= tokenizer.vocab_size()) std::abort();  // a mask always allows something
    if (!matcher.commit(id)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tokenizer = make_tokenizer();
  try {
    walk(*tokenizer, std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const Error&) {
  }
  return 0;
}
