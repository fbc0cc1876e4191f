#include "text/grammar.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "text/grammar_test_helper.h"

namespace mantou::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<const Grammar> compile(GrammarSource source) {
  return Grammar::compile(small_tokenizer(), std::move(source));
}

std::string error_of(GrammarSource source) {
  try {
    compile(std::move(source));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.param(), "grammar");
    EXPECT_LT(error.message().size(), 700u);
    return error.message();
  }
  return "no error";
}

TEST(Grammar, RegexIsForTheWholeText) {
  const auto grammar = compile({.kind = GrammarKind::kRegex, .text = "[0-9]{3}-(a|b)+/?"});
  EXPECT_TRUE(accepts(*grammar, "123-ab"));
  EXPECT_TRUE(accepts(*grammar, "000-b/"));
  for (const char* text : {"", "12-a", "123-", "123-c", "1234-a", "123-a//"})
    EXPECT_FALSE(accepts(*grammar, text)) << text;
}

TEST(Grammar, RegexErrors) {
  EXPECT_THAT(error_of({.kind = GrammarKind::kRegex, .text = "(a"}), HasSubstr("unclosed group"));
  EXPECT_THAT(error_of({.kind = GrammarKind::kRegex, .text = "a\\"}), HasSubstr("escape"));
  EXPECT_THAT(error_of({.kind = GrammarKind::kRegex, .text = "(?=a)b"}), HasSubstr("look-around"));
  EXPECT_THAT(error_of({.kind = GrammarKind::kRegex, .text = "a$b"}), HasSubstr("lookarounds"));
  EXPECT_THAT(error_of({.kind = GrammarKind::kRegex, .text = "(?P<stop>a)"}), HasSubstr("stop"));
  EXPECT_THAT(error_of({.kind = GrammarKind::kRegex, .text = "\xFF"}), HasSubstr("UTF-8"));
}

TEST(Grammar, ChoiceIsExactlyItsTexts) {
  const std::vector<std::string> choices = {"yes",         "no",       "no way", "a.b*",
                                            "caf\xC3\xA9", "\"{}\"\n", "(?i)x/", "\\d"};
  const auto grammar = compile({.kind = GrammarKind::kChoice, .choices = choices});
  for (const std::string& choice : choices) EXPECT_TRUE(accepts(*grammar, choice)) << choice;
  for (const char* text : {"", "ye", "yess", "axb", "no ", "1", "X", "x/", "caf"})
    EXPECT_FALSE(accepts(*grammar, text)) << text;
  EXPECT_THAT(error_of({.kind = GrammarKind::kChoice}), HasSubstr("nothing to choose from"));
}

TEST(Grammar, AnEmptyChoice) {
  const auto grammar = compile({.kind = GrammarKind::kChoice, .choices = {"", "a"}});
  EXPECT_TRUE(accepts(*grammar, ""));
  EXPECT_TRUE(accepts(*grammar, "a"));
  EXPECT_FALSE(accepts(*grammar, "aa"));
}

TEST(Grammar, JsonObject) {
  const auto grammar = compile({.kind = GrammarKind::kJsonObject});
  for (const char* text :
       {"{}", R"({"a": [1, -2.5e3, null, true, {"b": "c\n\"d"}]})", "{\n  \"x\": {}\n}"})
    EXPECT_TRUE(accepts(*grammar, text)) << text;
  for (const char* text : {"", "[]", "1", "{", R"({"a"})", R"({"a":01})", R"({"a":1,})", "{}{}"})
    EXPECT_FALSE(accepts(*grammar, text)) << text;
}

TEST(Grammar, AnEndIsNoPartOfAGrammar) {
  const auto grammar = compile({.kind = GrammarKind::kLark, .text = "start: \"a\" <|im_end|>"});
  GrammarMatcher matcher(*grammar);
  ASSERT_TRUE(matcher.commit(small_tokenizer().id_of("a")));
  EXPECT_FALSE(matcher.is_accepting());
  EXPECT_FALSE(matcher.commit(small_tokenizer().id_of("<|im_end|>")));
  EXPECT_THROW(mask_of(matcher, small_tokenizer()), Error);
}

TEST(Grammar, IdsBeyondTheVocabularyAreNotAllowed) {
  const auto grammar = compile({.kind = GrammarKind::kJsonObject});
  GrammarMatcher matcher(*grammar);
  EXPECT_FALSE(matcher.commit(small_tokenizer().vocab_size()));
  EXPECT_FALSE(matcher.commit(-1));
  EXPECT_TRUE(matcher.commit(small_tokenizer().id_of("{")));
}

TEST(Grammar, Lark) {
  const auto grammar = compile({.kind = GrammarKind::kLark, .text = R"~(
start: "f(" args? ")" <|im_start|>
args: NUMBER ("," NUMBER)*
NUMBER: /[0-9]+/
)~"});
  GrammarMatcher matcher(*grammar);
  for (const TokenId id : plain_ids("f(1,23)", small_tokenizer())) ASSERT_TRUE(matcher.commit(id));
  EXPECT_FALSE(matcher.is_accepting());
  const TokenId special = small_tokenizer().id_of("<|im_start|>");
  const Mask mask = mask_of(matcher, small_tokenizer());
  EXPECT_TRUE(has(mask, special));
  EXPECT_TRUE(matcher.commit(special));
  EXPECT_TRUE(matcher.is_stopped());
  matcher.rollback(1);
  EXPECT_EQ(mask_of(matcher, small_tokenizer()), mask);
  EXPECT_THAT(error_of({.kind = GrammarKind::kLark, .text = "start: %json {\"not\": {}}"}),
              HasSubstr("%json"));
  EXPECT_THAT(error_of({.kind = GrammarKind::kLark, .text = "start: a"}),
              HasSubstr("unknown name"));
  EXPECT_THAT(error_of({.kind = GrammarKind::kLark, .text = "start: \"a"}), HasSubstr("1("));
}

TEST(Grammar, EndsAreAllowedWhereTheTextMayEndAndAloneAfterwards) {
  const Tokenizer& tokenizer = small_tokenizer();
  const TokenId end = tokenizer.id_of("<|im_end|>"), other = tokenizer.id_of("<|endoftext|>");
  ASSERT_THAT(tokenizer.end_ids(), testing::UnorderedElementsAre(end, other));
  const auto grammar = compile({.kind = GrammarKind::kRegex, .text = "aa?"});
  GrammarMatcher matcher(*grammar);
  const TokenId a = tokenizer.id_of("a");
  Mask expected(mask_of(matcher, tokenizer).size());
  const auto set = [&](TokenId id) { expected[size_t(id) / 32] |= 1u << (id % 32); };
  set(a);
  EXPECT_EQ(mask_of(matcher, tokenizer), expected);
  EXPECT_FALSE(matcher.commit(end));  // and nothing changes
  EXPECT_EQ(mask_of(matcher, tokenizer), expected);
  ASSERT_TRUE(matcher.commit(a));
  set(end);
  set(other);
  EXPECT_EQ(mask_of(matcher, tokenizer), expected);
  EXPECT_FALSE(matcher.is_stopped());
  ASSERT_TRUE(matcher.commit(a));
  expected.assign(expected.size(), 0);
  set(end);
  set(other);
  EXPECT_EQ(mask_of(matcher, tokenizer), expected);
  EXPECT_TRUE(matcher.is_stopped());
  EXPECT_TRUE(matcher.is_accepting());
}

TEST(Grammar, MasksOfAnyLength) {
  const Tokenizer& tokenizer = small_tokenizer();
  const auto grammar = compile({.kind = GrammarKind::kRegex, .text = "[a-z]+"});
  GrammarMatcher matcher(*grammar);
  const Mask whole = mask_of(matcher, tokenizer);
  Mask longer(whole.size() + 3, ~0u), shorter(2, ~0u);
  matcher.mask(longer);
  matcher.mask(shorter);
  matcher.mask({});
  EXPECT_TRUE(std::equal(whole.begin(), whole.end(), longer.begin()));
  EXPECT_THAT(std::vector(longer.end() - 3, longer.end()), ElementsAre(0u, 0u, 0u));
  EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), whole.begin()));
  // No token beyond the vocabulary, in the last word either.
  for (TokenId id = tokenizer.vocab_size(); id < TokenId(32 * longer.size()); ++id)
    EXPECT_FALSE(has(longer, id));
}

TEST(Grammar, RollbackAndForkGiveTheSameMasks) {
  const Tokenizer& tokenizer = small_tokenizer();
  const std::vector<GrammarSource> sources = {
      {.kind = GrammarKind::kJsonObject},
      {.kind = GrammarKind::kGbnf,
       .text = "root ::= \"{\" (item (\",\" item)*)? \"}\"\nitem ::= root | \"\\\"\" [^\"]* "
               "\"\\\"\""},
  };
  const std::vector<std::string> texts = {R"({"a":[1,"x"],"en":{}})", R"({"a","es the",{},{{}}})"};
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto grammar = compile(sources[i]);
    GrammarMatcher matcher(*grammar);
    std::vector<TokenId> ids = plain_ids(texts[i], tokenizer);
    ids.push_back(tokenizer.end_ids()[0]);
    std::vector<Mask> masks;
    for (const TokenId id : ids) {
      masks.push_back(mask_of(matcher, tokenizer));
      GrammarMatcher fork = matcher.fork();
      EXPECT_EQ(mask_of(fork, tokenizer), masks.back());
      ASSERT_TRUE(fork.commit(id));  // does not move the other one
      EXPECT_EQ(mask_of(matcher, tokenizer), masks.back());
      ASSERT_TRUE(matcher.commit(id));
      EXPECT_EQ(mask_of(fork, tokenizer), mask_of(matcher, tokenizer));
    }
    EXPECT_TRUE(matcher.is_stopped());
    for (size_t back = 1; back <= ids.size(); ++back) {
      matcher.rollback(int(back));
      const size_t at = ids.size() - back;
      EXPECT_EQ(mask_of(matcher, tokenizer), masks[at]) << back;
      for (size_t k = at; k < ids.size(); ++k) ASSERT_TRUE(matcher.commit(ids[k])) << back;
    }
    EXPECT_THROW(matcher.rollback(int(ids.size()) + 1), Error);
  }
}

TEST(Grammar, SpecialTokensAreNoText) {
  const Tokenizer& tokenizer = small_tokenizer();
  const auto grammar = compile({.kind = GrammarKind::kRegex, .text = "(?s:.*)"});
  GrammarMatcher matcher(*grammar);
  const Mask mask = mask_of(matcher, tokenizer);
  EXPECT_FALSE(has(mask, tokenizer.id_of("<|im_start|>")));
  EXPECT_FALSE(has(mask, tokenizer.id_of("[GAP]")));
  EXPECT_TRUE(has(mask, tokenizer.id_of("<tool_call>")));  // added, but not special
  EXPECT_TRUE(has(mask, tokenizer.id_of("a")));
  EXPECT_TRUE(has(mask, tokenizer.end_ids()[0]));
}

TEST(Grammar, ByteFallbackVocabularies) {
  TokenizerSource source;
  source.origin = "tokenizer.json";
  source.tokenizer_json = kPrependJson;
  const auto tokenizer = Tokenizer::build(source);
  ASSERT_TRUE(tokenizer->end_ids().empty());  // the end is then is_accepting's to tell
  const auto grammar =
      Grammar::compile(*tokenizer, {.kind = GrammarKind::kRegex, .text = "( the|\xC3\xA9)+"});
  GrammarMatcher matcher(*grammar);
  for (const TokenId id :
       {tokenizer->id_of("<0xC3>"), tokenizer->id_of("<0xA9>"), tokenizer->id_of("\xE2\x96\x81t"),
        tokenizer->id_of("h"), tokenizer->id_of("e")}) {
    EXPECT_TRUE(has(mask_of(matcher, *tokenizer), id));
    ASSERT_TRUE(matcher.commit(id)) << id;
  }
  EXPECT_TRUE(matcher.is_accepting());
  EXPECT_FALSE(matcher.commit(tokenizer->id_of("t")));
}

TEST(Grammar, OneGrammarForManyThreads) {
  const auto grammar = compile({.kind = GrammarKind::kJsonObject});
  std::vector<std::thread> threads;
  std::vector<int> right(4);
  for (size_t t = 0; t < right.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i)
        right[t] += accepts(*grammar, R"({"a":[1,{"b":"c"}]})") && !accepts(*grammar, "{]");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(right, testing::Each(20));
}

std::string repeat(std::string_view text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(Grammar, HostileTextIsRefusedAtOnce) {
  const struct {
    GrammarSource source;
    const char* message;
  } cases[] = {
      {{GrammarKind::kJsonSchema, repeat(R"({"items":)", 10000) + "{}" + repeat("}", 10000)},
       "nested"},
      {{GrammarKind::kJsonSchema, repeat("[", 10000)}, "nested"},
      {{GrammarKind::kJsonSchema, repeat(R"({"not":)", 10000)}, "nested"},
      {{GrammarKind::kRegex, repeat("(", 50000)}, "group"},
      {{GrammarKind::kRegex, repeat("(", 25000) + repeat(")", 25000)}, "nested"},
      {{GrammarKind::kLark, "start: " + repeat("(", 50000)}, "nested"},
      {{GrammarKind::kLark, "start: A\nA: " + repeat("[", 50000)}, "nested"},
      {{GrammarKind::kGbnf, "root ::= " + repeat("(", 50000)}, "nested"},
      {{GrammarKind::kGbnf, "root ::= \"a\"" + repeat("?", 200000)}, "nested"},
      {{GrammarKind::kGbnf,
        "root ::= " + repeat("(", 100) + "\"a\"" + repeat(repeat("*", 10) + ")", 100)},
       "nested"},
      {{GrammarKind::kLark, "start: \"" + repeat("a", 300000) + "\""}, "too long"},
      {{GrammarKind::kGbnf, repeat("#", 300000)}, "too long"},
      {{GrammarKind::kJsonSchema, R"({"properties":{")" + repeat("k", 100000) +
                                      R"(":{"anyOf":[{})" + repeat(",{}", 19999) + "]}}}"},
       "keys are too long"},
  };
  for (const auto& hostile : cases) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_THAT(error_of(hostile.source), HasSubstr(hostile.message));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  }
}

TEST(Grammar, WhatTakesTooMuchMemoryIsRefusedAndGivesItBack) {
  for (int i = 0; i < 3; ++i) {
    for (const GrammarSource& source :
         {GrammarSource{GrammarKind::kRegex, repeat("\\w", 130000)},
          GrammarSource{GrammarKind::kLark, "start: /" + repeat("\\W", 130000) + "/"}})
      EXPECT_THAT(error_of(source), HasSubstr("more memory"));
  }
  EXPECT_EQ(error_of({GrammarKind::kRegex, "a+"}), "no error");
}

TEST(Grammar, WhatNothingSatisfiesIsAnError) {
  for (const char* schema :
       {R"({"$ref":"#"})", "false", R"({"type":"string","minLength":2,"maxLength":1})",
        R"({"type":"integer","minimum":2,"maximum":1})",
        R"({"allOf":[{"type":"string"},{"type":"null"}]})"})
    EXPECT_NE(error_of({.kind = GrammarKind::kJsonSchema, .text = schema}), "no error") << schema;
}

// An error of what was asked for: no other time and no more memory would help.
TEST(Grammar, TooMuchWorkIsAnErrorOfTheGrammar) {
  constexpr int kRules = 300;  // each of which may be what any stretch of letters is
  std::string rules = "start: x0\n";
  for (int i = 0; i < kRules; ++i)
    rules += fmt::format("x{}: /[a-z]/ | x{} x{}\n", i, (i + 1) % kRules, (i + 7) % kRules);
  const auto grammar = compile({.kind = GrammarKind::kLark, .text = rules});
  GrammarMatcher matcher(*grammar);
  const TokenId letter = plain_ids("a", small_tokenizer()).at(0);
  try {
    for (int k = 0; k < 2000; ++k) {
      mask_of(matcher, small_tokenizer());
      ASSERT_TRUE(matcher.commit(letter));
    }
    FAIL() << "2000 letters were no work";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.param(), "grammar");
    EXPECT_THAT(error.message(), HasSubstr("grammar: "));
  }
}

}  // namespace
}  // namespace mantou::text
