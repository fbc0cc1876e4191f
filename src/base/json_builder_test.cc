// Against nlohmann's own parser, which builds the same values without limits.
#include "base/json_builder.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace mantou {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kTexts[] = {"null",
                                  "true",
                                  "-12",
                                  "18446744073709551615",
                                  "1.5e-3",
                                  "\"a\\u00e9\\n\"",
                                  "[]",
                                  "{}",
                                  R"({"b":[1,{"c":null},[[]]],"a":{"x":"y"},"":0})",
                                  R"([{"a":1},{"a":2}])"};

template <class Json>
JsonDefect defect_of(std::string_view text, const JsonBounds& bounds = {}) {
  try {
    build_json<Json>(text, bounds);
  } catch (const JsonDefect& defect) {
    return defect;
  }
  ADD_FAILURE() << text << " was taken";
  return {JsonDefect::kSyntax, 0, {}};
}

TEST(JsonBuilder, BuildsWhatNlohmannBuilds) {
  for (const char* text : kTexts) {
    EXPECT_EQ(build_json<json>(text), json::parse(text)) << text;
    EXPECT_EQ(build_json<ordered_json>(text).dump(), ordered_json::parse(text).dump()) << text;
  }
}

TEST(JsonBuilder, TheLastOfEqualKeysCountsInThePlaceOfTheFirst) {
  const char* text = R"({"a":{"x":1},"b":2,"a":[3]})";
  EXPECT_EQ(build_json<json>(text).dump(), R"({"a":[3],"b":2})");
  EXPECT_EQ(build_json<ordered_json>(text).dump(), R"({"a":[3],"b":2})");
  const JsonDefect defect = defect_of<json>(text, {64, SIZE_MAX, true});
  EXPECT_EQ(defect.kind, JsonDefect::kDuplicateKey);
  EXPECT_EQ(defect.detail, "a");
}

TEST(JsonBuilder, Bounds) {
  EXPECT_EQ(build_json<json>("[[[]]]", {3}).dump(), "[[[]]]");
  EXPECT_EQ(defect_of<json>("[[[]]]", {2}).kind, JsonDefect::kDepth);
  EXPECT_EQ(build_json<json>("[1,2]", {64, 3}).size(), 2u);
  EXPECT_EQ(defect_of<json>("[1,2,3]", {64, 3}).kind, JsonDefect::kValues);
}

TEST(JsonBuilder, BrokenTextsSayWhere) {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "nul", "1 2", "\"\xff\""})
    EXPECT_EQ(defect_of<ordered_json>(text).kind, JsonDefect::kSyntax) << text;
  EXPECT_EQ(defect_of<json>("[1,x]").position, 4u);
  for (int letters = 150; letters < 160; letters++) {  // the reason is cut, but not inside of an é
    std::string text = "{\"a\": \"" + std::string(size_t(letters), 'x');
    for (int i = 0; i < 2000; i++) text += "é";
    const std::string detail = defect_of<json>(text).detail;
    EXPECT_LE(detail.size(), 203u);
    EXPECT_TRUE(is_utf8(detail)) << detail;
  }
}

}  // namespace
}  // namespace mantou
