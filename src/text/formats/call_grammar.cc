#include "text/formats/call_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "text/formats/tool_catalog.h"

namespace mantou::text {
namespace {

using Json = nlohmann::ordered_json;

// How a format spells a call: open {"name": NAME, arguments: …} close.
struct Spelling {
  std::string_view format;
  std::string_view open_token, after_open;
  std::string_view arguments;  // the key
  std::string_view before_close, close_token;
  std::string_view between;  // calls
};

constexpr Spelling kSpellings[] = {
    {"hermes", "<tool_call>", "\n", "arguments", "\n", "</tool_call>", "\n"},
    {"llama3", "", "", "parameters", "", "", "; "},
};
constexpr const Spelling& kPlain = kSpellings[1];

std::string literal(std::string_view text) { return text.empty() ? "" : to_text(Json(text)); }

// A special token is not spelled by its bytes in a grammar.
std::string token(std::string_view text, const Tokenizer& tokenizer) {
  const TokenId id = text.empty() ? -1 : tokenizer.id_of(text);
  return id >= 0 && tokenizer.is_special(id) ? fmt::format("<[{}]>", id) : literal(text);
}

const Spelling& spelling_of(const OutputFormat& format) {
  const auto* const at = std::ranges::find(kSpellings, format.tools, &Spelling::format);
  return at == std::end(kSpellings) ? kPlain : *at;
}

std::string call_rules(const Spelling& spelling, int number, const Json& function,
                       const Tokenizer& tokenizer) {
  const auto parameters = function.find("parameters");
  const bool any = parameters == function.end() || parameters->is_null();
  const std::string head =
      fmt::format(R"({{"name": {}, "{}": )", to_text(function.at("name")), spelling.arguments);
  return fmt::format("call_{0}: {1} {2} {3} arguments_{0} {4} {5}\narguments_{0}: %json {6}\n",
                     number, token(spelling.open_token, tokenizer), literal(spelling.after_open),
                     literal(head), literal(fmt::format("}}{}", spelling.before_close)),
                     token(spelling.close_token, tokenizer),
                     any ? R"({"type": "object"})" : to_text(*parameters));
}

}  // namespace

std::optional<CallGrammar> call_grammar(const OutputFormat& format, const Json& tools,
                                        const CallRules& rules, const Tokenizer& tokenizer) {
  const Spelling& spelling = spelling_of(format);
  if (rules.or_answer && spelling.open_token.empty()) return std::nullopt;
  std::string names, lines;
  int count = 0;
  for (const Json& tool : tools) {
    const Json* const function = function_of(tool);
    if (function == nullptr) continue;
    names += fmt::format("{}call_{}", count ? " | " : "", count);
    lines += call_rules(spelling, count, *function, tokenizer);
    count++;
  }
  if (count == 0)
    fail_param(ErrorCode::kInvalidArgument, "tools",
               "'tools' holds no function that can be called");
  const std::string more =
      rules.several ? fmt::format(" ({} call)*", literal(spelling.between)) : "";
  std::string lark = fmt::format("start: calls{}\ncalls: call{}\ncall: {}\n{}",
                                 rules.or_answer ? " | answer" : "", more, names, lines);
  if (rules.or_answer) lark += fmt::format("answer: %json {}\n", to_text(*rules.or_answer));
  return CallGrammar{std::move(lark), {std::string(spelling.format), format.reasoning}};
}

}  // namespace mantou::text
