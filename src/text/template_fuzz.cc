// Any template over a fixed conversation, and any conversation through a fixed template: an Error
// or a prompt, never a crash or a hang; literal ranges lie in order within the text.
#include <cstdlib>

#include "base/error.h"
#include "text/chat_template.h"
#include "text/text_goldens.h"

namespace {

using namespace mantou;
using namespace mantou::text;
using nlohmann::ordered_json;

const std::shared_ptr<const Tokenizer>& tokenizer() {
  static const auto built = [] {
    TokenizerSource source;
    source.origin = "fuzz";
    source.tokenizer_json = kByteLevelJson;
    return Tokenizer::build(source);
  }();
  return built;
}

void check(const ChatPrompt& prompt) {
  size_t end = 0;
  for (const ByteRange& range : prompt.literal) {
    if (range.begin < end || range.end < range.begin || range.end > prompt.text.size()) abort();
    end = range.begin;
  }
}

void render(const std::string& chat_template, const ordered_json& messages) {
  TokenizerSource source;
  source.origin = "fuzz";
  source.chat_template = chat_template;
  try {
    check(ChatTemplate::build(source, tokenizer())->render(messages, {}));
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 4096) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    static const ordered_json kMessages = ordered_json::parse(
        R"([{"role":"user","content":"a<|im_end|>b"},{"role":"assistant","content":"c"}])");
    render(text, kMessages);
  } else {
    const auto messages = ordered_json::parse(text, nullptr, false);
    if (!messages.is_discarded())
      render("{{ messages | tojson }}{{ messages[0].content }}", messages);
  }
  return 0;
}
