#include "server/chat_prompt.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "text/formats/call_grammar.h"

namespace mantou::server {
namespace {

// The schema of an answer that is bound by one.
std::optional<Json> answer_schema(const GenerationFields& fields) {
  const text::GrammarSource& source = fields.grammar->source;
  if (source.kind == text::GrammarKind::kJsonObject) return Json{{"type", "object"}};
  if (source.kind == text::GrammarKind::kJsonSchema) return Json::parse(source.text);
  return std::nullopt;
}

// Binds an answer that must call, or whose text is bound while it may call, to a grammar that
// allows calls. Where calls could not be told from the text, there are none.
void bind_calls(const Services& services, const Json& tools, ChatRequest& request,
                text::OutputFormat& output) {
  GenerationFields& fields = request.generation;
  if (tools.is_null() || (!request.must_call && !fields.grammar)) return;
  text::CallRules rules{!fields.one_call, std::nullopt};
  if (request.must_call) {
    if (fields.grammar)
      fail_param(ErrorCode::kInvalidArgument, "tool_choice",
                 "'tool_choice' asks for a call, '{}' for something else", fields.grammar->field);
  } else {
    rules.or_answer = answer_schema(fields);
    if (!rules.or_answer) return;
  }
  auto grammar = text::call_grammar(output, tools, rules, *services.tokenizer);
  if (!grammar) return;
  text::GrammarSource source{text::GrammarKind::kLark};
  source.text = std::move(grammar->lark);
  fields.grammar = GrammarField{std::move(source), "tools"};
  output = std::move(grammar->format);
}

}  // namespace

Prompt render_chat(const Services& services, ChatRequest& request) {
  text::ChatPrompt rendered = services.chat_template->render(request.messages, request.chat);
  const Json tools = request.callable_tools.is_null() ? request.chat.tools : request.callable_tools;
  text::OutputFormat output = services.output_format;
  bind_calls(services, tools, request, output);
  const bool in_reasoning =
      text::begins_in_reasoning(output, rendered.text, request.chat.continue_final_message);
  Prompt prompt{.ids = std::move(rendered.ids), .field = "messages"};
  // Without a token of its own for the end of reasoning a grammar holds from the start.
  const TokenId end = services.tokenizer->id_of(text::reasoning_end(output));
  if (in_reasoning && end >= 0) prompt.grammar_begins_after = {end};
  prompt.make_parser = [output, tools, in_reasoning] {
    return text::make_output_parser(output, tools, in_reasoning);
  };
  return prompt;
}

}  // namespace mantou::server
