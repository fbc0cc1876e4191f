// Grammars over a model's vocabulary, driven by tools/check_grammar.py.
//
//   grammar_driver MODEL < REQUESTS
//
// MODEL is a GGUF file, a model directory or a tokenizer.json. Each line of stdin is a request and
// is answered with one line on stdout:
//   {"kind": "json_schema" | "json_object" | "regex" | "choice" | "lark" | "gbnf", "text": …,
//    "choices": […], "texts": […]}
//   → {"refused": reason}
//   → {"compile_us": …, "results": [{"accepted": …, "at": …, "mask_us": […]}, …]}
// A text is fed token by token. It is accepted when the masks allow each token and an end behind
// the last. "at" is how many of its bytes were allowed, "mask_us" has a number for each mask that
// was made.
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/grammar.h"
#include "tokenizer_source.h"

namespace mantou {
namespace {

using nlohmann::ordered_json;
using text::Grammar;
using text::GrammarKind;
using text::GrammarMatcher;
using text::Tokenizer;
using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

GrammarKind kind_of(const std::string& name) {
  constexpr std::pair<std::string_view, GrammarKind> kKinds[] = {
      {"json_schema", GrammarKind::kJsonSchema},
      {"json_object", GrammarKind::kJsonObject},
      {"regex", GrammarKind::kRegex},
      {"choice", GrammarKind::kChoice},
      {"lark", GrammarKind::kLark},
      {"gbnf", GrammarKind::kGbnf}};
  for (const auto& [known, kind] : kKinds)
    if (name == known) return kind;
  fail(ErrorCode::kInvalidArgument, "unknown kind {}", name);
}

ordered_json feed(const Grammar& grammar, const Tokenizer& tokenizer, const std::string& text) {
  GrammarMatcher matcher(grammar);
  std::vector<uint32_t> mask((size_t(tokenizer.vocab_size()) + 31) / 32);
  const auto allows = [&](TokenId id) { return mask[size_t(id) / 32] >> (id % 32) & 1; };
  ordered_json times = ordered_json::array();
  const auto make_mask = [&] {
    const auto start = Clock::now();
    matcher.mask(mask);
    times.push_back(microseconds_since(start));
  };
  make_mask();
  size_t at = 0;
  for (const TokenId id : tokenizer.encode(text, {.add_special = false, .parse_special = false})) {
    const bool allowed = allows(id);
    if (matcher.commit(id) != allowed)
      fail(ErrorCode::kInternal, "mask and commit disagree on token {} of {}", id, text);
    if (!allowed) return {{"accepted", false}, {"at", at}, {"mask_us", times}};
    at += tokenizer.bytes_of(id).size();
    make_mask();
  }
  const auto& ends = tokenizer.end_ids();
  const bool accepted = std::any_of(ends.begin(), ends.end(), allows);
  if (accepted != matcher.is_accepting())
    fail(ErrorCode::kInternal, "mask and is_accepting disagree behind {}", text);
  return {{"accepted", accepted}, {"at", at}, {"mask_us", times}};
}

ordered_json answer(const ordered_json& request, const Tokenizer& tokenizer) {
  text::GrammarSource source{kind_of(request.at("kind")), request.value("text", ""),
                             request.value("choices", std::vector<std::string>())};
  std::shared_ptr<const Grammar> grammar;
  const auto start = Clock::now();
  try {
    grammar = Grammar::compile(tokenizer, std::move(source));
  } catch (const Error& error) {
    return {{"refused", error.message()}};
  }
  ordered_json out = {{"compile_us", microseconds_since(start)},
                      {"results", ordered_json::array()}};
  for (const auto& text : request.at("texts"))
    out["results"].push_back(feed(*grammar, tokenizer, text.get<std::string>()));
  return out;
}

}  // namespace
}  // namespace mantou

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: grammar_driver MODEL < REQUESTS\n";
    return 2;
  }
  const auto tokenizer = mantou::text::Tokenizer::build(mantou::read_tokenizer(argv[1]));
  for (std::string line; std::getline(std::cin, line);)
    std::cout << mantou::answer(nlohmann::ordered_json::parse(line), *tokenizer).dump()
              << std::endl;
} catch (const std::exception& error) {
  std::cerr << "grammar_driver: " << error.what() << '\n';
  return 1;
}
