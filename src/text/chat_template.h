// Chat messages to a prompt, as transformers' apply_chat_template does it. Immutable; any thread.
//
// JSON is ordered: templates print tools and arguments, and models were trained on them in the
// order in which they were written.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace mantou::text {

struct ChatOptions {
  bool add_generation_prompt = true;
  bool continue_final_message = false;     // the last message is a prefix to continue
  nlohmann::ordered_json tools = nullptr;  // null or an array of OpenAI tool objects
  nlohmann::ordered_json extra = nullptr;  // null or an object: chat_template_kwargs
};

struct ChatPrompt {
  std::string text;
  std::vector<ByteRange> literal;  // where user and tool content stands that spells special tokens
  std::vector<TokenId> ids;
};

class ChatTemplate {
 public:
  // From source.chat_template (or the named "default"); ChatML when the checkpoint has none. Errors
  // name source.origin and the line of the template.
  static std::shared_ptr<const ChatTemplate> build(const TokenizerSource& source,
                                                   std::shared_ptr<const Tokenizer> tokenizer);
  virtual ~ChatTemplate() = default;

  virtual bool is_fallback() const = 0;                   // ChatML stood in: say so once
  virtual std::string_view source() const { return {}; }  // of chats without tools; empty: unknown
  // `messages`: OpenAI messages (developer → system, text parts joined, tool_calls arguments
  // parsed). kInvalidArgument with param "messages[2].content" and the like; a template's
  // raise_exception is its message.
  virtual ChatPrompt render(const nlohmann::ordered_json& messages,
                            const ChatOptions& options) const = 0;
  // render().text alone, without the work that its ids are.
  virtual std::string render_text(const nlohmann::ordered_json& messages,
                                  const ChatOptions& options) const {
    return render(messages, options).text;
  }
};

}  // namespace mantou::text
