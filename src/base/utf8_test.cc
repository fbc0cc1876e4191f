// Well-formed UTF-8 and what becomes of the rest. The sequences and their replacements are tables
// 3-7 to 3-11 of the Unicode standard, version 15.
#include "base/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace mantou {
namespace {

std::string encoded(uint32_t point) {
  if (point < 0x80) return {char(point)};
  if (point < 0x800) return {char(0xC0 | point >> 6), char(0x80 | (point & 63))};
  if (point < 0x10000)
    return {char(0xE0 | point >> 12), char(0x80 | (point >> 6 & 63)), char(0x80 | (point & 63))};
  return {char(0xF0 | point >> 18), char(0x80 | (point >> 12 & 63)), char(0x80 | (point >> 6 & 63)),
          char(0x80 | (point & 63))};
}

TEST(Utf8, EveryCharacterIsWellFormedAndNoSurrogateIs) {
  for (uint32_t point = 0; point <= 0x110FFF; ++point) {
    const std::string bytes = encoded(point);
    const bool character = point <= 0x10FFFF && (point < 0xD800 || point > 0xDFFF);
    ASSERT_EQ(is_utf8(bytes), character) << point;
    ASSERT_EQ(character_length(bytes + "x"), character ? bytes.size() : 0) << point;
    if (bytes.size() > 1) {
      ASSERT_FALSE(is_utf8(bytes.substr(0, bytes.size() - 1))) << point;
    }
  }
}

TEST(Utf8, OverlongFormsAreBroken) {
  for (const char* bytes :
       {"\xC0\xAF", "\xC1\xBF", "\xE0\x80\xAF", "\xE0\x9F\xBF", "\xF0\x80\x80\xAF",
        "\xF0\x8F\xBF\xBF", "\xF5\x80\x80\x80", "\xFE", "\x80"}) {
    EXPECT_FALSE(is_utf8(bytes));
    EXPECT_EQ(character_length(bytes), 0u);
  }
  EXPECT_TRUE(is_utf8(""));
  EXPECT_EQ(character_length(""), 0u);
}

TEST(Utf8, EachMaximalSubpartIsOneReplacement) {
  const auto replaced = [](int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += kReplacement;
    return out;
  };
  struct Row {
    std::string bytes, expected;
  };
  const std::vector<Row> rows = {
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", replaced(8) + "A"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", replaced(8) + "A"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", replaced(5) + "A" + replaced(2) + "B"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", replaced(4) + "A"},
  };
  for (const Row& row : rows) {
    std::string whole = row.bytes, pending, pieces;
    EXPECT_EQ(take_characters(whole), row.expected);
    EXPECT_EQ(whole, "");
    for (const char byte : row.bytes) {
      pending += byte;
      pieces += take_characters(pending);
    }
    EXPECT_EQ(pieces, row.expected) << "byte by byte";
  }
}

TEST(Utf8, TheBeginningOfACharacterWaits) {
  std::string pending = "a\xF0\x9F\x98";
  EXPECT_EQ(take_characters(pending), "a");
  EXPECT_EQ(pending, "\xF0\x9F\x98");
  pending += '\x80';
  EXPECT_EQ(take_characters(pending), "\xF0\x9F\x98\x80");
}

}  // namespace
}  // namespace mantou
