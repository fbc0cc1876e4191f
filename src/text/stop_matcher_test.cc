#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"

namespace mantou::text {
namespace {

struct Outcome {
  std::string text;
  bool matched;
  bool operator==(const Outcome&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  return out << '"' << outcome.text << '"' << (outcome.matched ? " matched" : "");
}

// What the rule says, on the whole text at once.
Outcome expected(const std::string& text, const std::vector<std::string>& stops) {
  size_t first = std::string::npos;
  for (const std::string& stop : stops) first = std::min(first, text.find(stop));
  return {text.substr(0, first), first != std::string::npos};
}

Outcome run(const std::vector<std::string>& pieces, const std::vector<std::string>& stops) {
  StopMatcher matcher(stops);
  std::string text;
  for (const std::string& piece : pieces) text += matcher.push(piece);
  text += matcher.flush();
  return {text, matcher.matched()};
}

TEST(StopMatcherTest, MatchesAcrossPieces) {
  EXPECT_EQ(run({"Hello <", "|im", "_end|> more"}, {"<|im_end|>"}), (Outcome{"Hello ", true}));
  EXPECT_EQ(run({"a", "b", "a", "b", "a", "c"}, {"abac"}), (Outcome{"ab", true}));
  EXPECT_EQ(run({"no ", "stop ", "here <|im"}, {"<|im_end|>"}),
            (Outcome{"no stop here <|im", false}));
  EXPECT_EQ(run({"plain"}, {}), (Outcome{"plain", false}));
}

TEST(StopMatcherTest, TheEarliestBeginWins) {
  EXPECT_EQ(run({"xabcd"}, {"c", "abcd"}), (Outcome{"x", true}));
  EXPECT_EQ(run({"x", "a", "b", "c", "d"}, {"c", "abcd"}), (Outcome{"x", true}));
  EXPECT_EQ(run({"x", "a", "b", "c", "e"}, {"c", "abcd"}), (Outcome{"xab", true}));
  EXPECT_EQ(run({"x", "a", "b", "c"}, {"c", "abcd"}),
            (Outcome{"xab", true}));  // settled at the end
}

// However the text is cut.
TEST(StopMatcherTest, SaysWhichMatched) {
  const std::vector<std::string> stops = {"c", "bcd", "abcde", "abcdefg", "xyz"};
  const auto match = [&](std::string_view text, size_t piece) {
    StopMatcher matcher(stops);
    for (size_t at = 0; at < text.size(); at += piece) matcher.push(text.substr(at, piece));
    matcher.flush();
    return matcher.match();
  };
  for (const size_t piece : {1, 2, 3, 100}) {
    EXPECT_EQ(match("abcdefgh", piece), "abcde") << piece;
    EXPECT_EQ(match("abcdx", piece), "bcd") << piece;
    EXPECT_EQ(match("abcd", piece), "bcd") << piece;
    EXPECT_EQ(match("abc", piece), "c") << piece;
    EXPECT_EQ(match("xy", piece), "") << piece;
  }
}

TEST(StopMatcherTest, EmitsAsSoonAsItMay) {
  StopMatcher matcher({"<stop>"});
  EXPECT_EQ(matcher.push("text"), "text");
  EXPECT_EQ(matcher.push("a<st"), "a");
  EXPECT_EQ(matcher.push("ay"), "<stay");
  EXPECT_EQ(matcher.push("<stop>gone"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcherTest, DoesNotDependOnTheCuts) {
  std::mt19937 random(7);
  const auto pick = [&](size_t n) { return size_t(random() % n); };
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops(1 + pick(3));
    for (std::string& stop : stops)
      for (size_t n = 1 + pick(4); n > 0; --n) stop += char('a' + pick(2));
    std::vector<std::string> pieces(pick(6));
    std::string text;
    for (std::string& piece : pieces) {
      for (size_t n = pick(5); n > 0; --n) piece += char('a' + pick(3));
      text += piece;
    }
    ASSERT_EQ(run(pieces, stops), expected(text, stops)) << text;
  }
}

TEST(StopMatcherTest, EmptySequencesAreRefused) {
  try {
    StopMatcher matcher({"a", ""});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.param(), "stop");
  }
}

}  // namespace
}  // namespace mantou::text
