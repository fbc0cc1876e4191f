// Any tokenizer.json, and any text through two good ones. The first may only be refused. Of the
// second, the stepwise pipeline must agree with the whole one, special tokens must stay out of
// literal text, and streamed text must equal decoded text.
#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "text/text_goldens.h"
#include "text/tokenizer.h"

namespace {

using namespace mantou;
using namespace mantou::text;

std::shared_ptr<const Tokenizer> build(std::string json) {
  TokenizerSource source;
  source.origin = "fuzz";
  source.tokenizer_json = std::move(json);
  return Tokenizer::build(source);
}

void check_text(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.encode(text, {.add_special = false});
  const ByteRange behind[] = {{text.size(), text.size() + 1}};
  if (tokenizer.encode(text, {.add_special = false, .literal = behind}) != ids) abort();
  const ByteRange all[] = {{0, text.size()}};
  const auto plain = tokenizer.encode(text, {.add_special = false, .literal = all});
  const TokenId unknown = tokenizer.id_of("<unk>");
  for (const TokenId id : plain)
    if (tokenizer.is_special(id) && id != unknown) abort();
  if (tokenizer.encode(text, {.add_special = false, .parse_special = false}) != plain) abort();
  tokenizer.decode(ids, true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 100000) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  static const auto kBytes = build(kByteLevelJson), kPieces = build(kMetaspaceJson);
  switch (data[0] % 3) {
    case 0:
      check_text(*kBytes, text);
      break;
    case 1:
      check_text(*kPieces, text);
      break;
    default:
      try {
        build(text)->encode("The engine", {});
      } catch (const Error&) {
      }
  }
  return 0;
}
