#include "server/chat_prompt.h"

#include <utility>

namespace mantou::server {

Prompt render_chat(const Services& services, const Json& messages, const text::ChatOptions& chat) {
  text::ChatPrompt rendered = services.chat_template->render(messages, chat);
  const text::OutputFormat& output = services.output_format;
  const bool in_reasoning =
      text::begins_in_reasoning(output, rendered.text, chat.continue_final_message);
  Prompt prompt{std::move(rendered.ids), "messages", {}, {}};
  // Without a token of its own for the end of reasoning a grammar holds from the start.
  const TokenId end = services.tokenizer->id_of(text::reasoning_end(output));
  if (in_reasoning && end >= 0) prompt.grammar_begins_after = {end};
  prompt.make_parser = [output, tools = chat.tools, in_reasoning] {
    return text::make_output_parser(output, tools, in_reasoning);
  };
  return prompt;
}

}  // namespace mantou::server
