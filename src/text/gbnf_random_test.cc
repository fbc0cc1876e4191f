// Random grammars, converted and compiled, against a plain reading of the notation.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "text/gbnf_syntax.h"
#include "text/grammar_test_helper.h"

namespace mantou::text {
namespace {

std::shared_ptr<const Grammar> compile(const std::string& gbnf) {
  return Grammar::compile(small_tokenizer(), {.kind = GrammarKind::kGbnf, .text = gbnf});
}

// All places in `text` where a node that begins at a place may end: the meaning of the notation,
// written down without lexers or automata.
class Reference {
 public:
  Reference(const Gbnf& grammar, std::string_view text) : grammar_(grammar), text_(text) {}

  bool accepts() { return rule(grammar_.root, 0).contains(text_.size()); }

 private:
  using Places = std::set<size_t>;

  const Places& rule(int id, size_t from) {
    const auto [known, is_new] = known_.try_emplace({id, from});
    // Rules do not begin with themselves, so none asks for itself here while it is worked out.
    if (is_new) known->second = node(grammar_.rules[size_t(id)].body, from);
    return known->second;
  }

  Places node(int id, size_t from) {
    const GbnfNode& n = grammar_.nodes[size_t(id)];
    Places out;
    switch (n.kind) {
      case GbnfNode::Kind::kCharacters: {
        if (from >= text_.size()) return {};
        const auto c = char32_t(text_[from]);
        bool in = false;
        for (const auto& [low, high] : n.ranges) in |= low <= c && c <= high;
        if (in != n.negated) out.insert(from + 1);
        return out;
      }
      case GbnfNode::Kind::kRule:
        return rule(n.rule, from);
      case GbnfNode::Kind::kChoice:
        for (const int child : n.children) out.merge(node(child, from));
        return out;
      case GbnfNode::Kind::kSequence: {
        out = {from};
        for (const int child : n.children) out = after(child, out);
        return out;
      }
      case GbnfNode::Kind::kRepeat: {
        Places now = {from};
        for (int i = 0; i < n.min; ++i) now = after(n.children[0], now);
        out = now;
        for (int i = n.min; n.max < 0 ? i <= n.min + int(text_.size()) : i < n.max; ++i) {
          now = after(n.children[0], now);
          out.insert(now.begin(), now.end());
        }
        return out;
      }
      case GbnfNode::Kind::kToken:
        break;
    }
    return {};
  }

  Places after(int child, const Places& places) {
    Places out;
    for (const size_t place : places) out.merge(node(child, place));
    return out;
  }

  const Gbnf& grammar_;
  const std::string_view text_;
  std::map<std::pair<int, size_t>, Places> known_;
};

std::string random_element(std::mt19937& random, int depth) {
  static const char* const kLeaves[] = {"\"a\"", "\"b\"",   "\"ab\"", "\"ba\"", "[ab]",
                                        "[^a]",  "\"aab\"", "r1",     "r2",     "r3",
                                        "r1",    "r2",      "\"c\"",  "[bc]",   "root"};
  static const char* const kRepeats[] = {"", "", "", "?", "*", "+", "{2}", "{1,3}"};
  std::string element;
  if (depth > 0 && random() % 3 == 0) {
    element = "(";
    for (size_t n = 1 + random() % 3; n > 0; --n) {
      for (size_t k = 1 + random() % 2; k > 0; --k)
        element += random_element(random, depth - 1) + " ";
      element += n > 1 ? "| " : ")";
    }
  } else {
    element = kLeaves[random() % std::size(kLeaves)];
  }
  return element + kRepeats[random() % std::size(kRepeats)];
}

std::string random_grammar(std::mt19937& random) {
  std::string gbnf;
  for (const char* rule : {"root", "r1", "r2", "r3"}) {
    gbnf += std::string(rule) + " ::= ";
    for (size_t n = 1 + random() % 3; n > 0; --n) {
      for (size_t k = 1 + random() % 3; k > 0; --k) gbnf += random_element(random, 2) + " ";
      gbnf += n > 1 ? "| " : "\n";
    }
  }
  return gbnf;
}

std::string random_letters(std::mt19937& random) {
  std::string text;
  for (size_t n = random() % 9; n > 0; --n) text += "aabbc"[random() % 5];
  return text;
}

// Over three letters longest matches and what may follow overlap all the time.
TEST(GbnfRandom, GrammarsMeanTheSame) {
  std::mt19937 random(3);
  int grammars = 0, accepted = 0, recursive = 0, given_up = 0;
  for (int i = 0; i < 600; ++i) {
    const std::string gbnf = random_grammar(random);
    Gbnf parsed;
    try {
      parsed = parse_gbnf(gbnf, [](std::string_view) { return -1; });
    } catch (const Error&) {
      continue;  // left recursion and the like
    }
    std::shared_ptr<const Grammar> grammar;
    ASSERT_NO_THROW(grammar = compile(gbnf)) << gbnf;
    ++grammars;
    recursive += parsed.rules[size_t(parsed.root)].recursive;
    try {
      for (int k = 0; k < 25; ++k) {
        const std::string text = random_letters(random);
        const bool expected = Reference(parsed, text).accepts();
        accepted += expected;
        ASSERT_EQ(accepts(*grammar, text), expected) << gbnf << text;
      }
      // What the masks lead to is in the language.
      const std::string text = random_text(*grammar, random, 12);
      const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return c >= 0; });
      if (!text.empty() && text.size() < 60 && ascii) {
        ASSERT_TRUE(Reference(parsed, text).accepts()) << gbnf << text;
      }
    } catch (const Error& error) {
      // Some are so ambiguous that a mask takes more work than it may.
      ASSERT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.message();
      ++given_up;
    }
  }
  EXPECT_GT(grammars, 40);
  EXPECT_GT(recursive, 15);
  EXPECT_GT(accepted, 100);
  EXPECT_LT(given_up, grammars / 20);
}

}  // namespace
}  // namespace mantou::text
