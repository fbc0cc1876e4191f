// ConfigReader, parse_json's limits and printable().
#include "hub/config_reader.h"

#include <gtest/gtest.h>

#include <limits>

#include "hub/expect_error.h"
#include "hub/json_file.h"

namespace mantou::hub {
namespace {

using nlohmann::json;
using testing::expect_error;

class ConfigReaderTest : public ::testing::Test {
 protected:
  const json json_ = json::parse(R"({
    "n": 7, "minus": -3, "whole": 8.0, "part": 8.5, "huge": 1e300, "unsigned": 18446744073709551615,
    "edge": 9223372036854775807, "text": "abc", "none": null, "yes": true, "x": 0.25, "list": [1, 2, 3],
    "mixed": [1, "b"], "names": ["a", "b"], "rope_scaling": {"factor": -2, "deep": {"z": "q"}}})");
  const ConfigReader config_{json_, "model/config.json"};

  template <class Call>
  void expect_bad(const std::string& text, Call call) {
    expect_error(ErrorCode::kCorruptData, "model/config.json: " + text, call);
  }
};

TEST_F(ConfigReaderTest, Integers) {
  EXPECT_EQ(config_.get_int("n", 1, 10), 7);
  EXPECT_EQ(config_.get_int("whole", 1, 10), 8);
  EXPECT_EQ(config_.get_int("absent", 1, 10, 5), 5);
  EXPECT_EQ(config_.get_int("none", 1, 10, 5), 5);
  EXPECT_EQ(config_.get_int("edge", 0, std::numeric_limits<int64_t>::max()),
            std::numeric_limits<int64_t>::max());
  expect_bad("minus is -3, must be 1 … 1048576", [&] { config_.get_int("minus", 1, 1048576); });
  expect_bad("edge is 9223372036854775807, must be 0 … 9223372036854775806",
             [&] { config_.get_int("edge", 0, std::numeric_limits<int64_t>::max() - 1); });
  expect_bad("part is 8.5, must be a whole number 1 … 10", [&] { config_.get_int("part", 1, 10); });
  expect_bad("huge is 1e+300, must be", [&] { config_.get_int("huge", 1, 10); });
  expect_bad("unsigned is 18446744073709551615", [&] { config_.get_int("unsigned", -10, 10); });
  expect_bad("text is \"abc\", must be a whole number", [&] { config_.get_int("text", 1, 10); });
  expect_bad("yes is true, must be a whole number", [&] { config_.get_int("yes", 0, 10); });
  expect_bad("absent is missing", [&] { config_.get_int("absent", 1, 10); });
  expect_bad("none is missing", [&] { config_.get_int("none", 1, 10); });
}

TEST_F(ConfigReaderTest, Doubles) {
  EXPECT_EQ(config_.get_double("x", 0, 1), 0.25);
  EXPECT_EQ(config_.get_double("n", 0, 10), 7.0);
  EXPECT_EQ(config_.get_double("absent", 0, 10, 1.5), 1.5);
  expect_bad("x is 0.25, must be 1 … 2", [&] { config_.get_double("x", 1, 2); });
  expect_bad("text is \"abc\", must be a number 1 … 2", [&] { config_.get_double("text", 1, 2); });
  const json nan = {{"v", std::nan("")}};
  expect_error(ErrorCode::kCorruptData, "v is null, must be 0 … 1",
               [&] { ConfigReader(nan, "c").get_double("v", 0, 1); });
}

TEST_F(ConfigReaderTest, OtherKinds) {
  EXPECT_TRUE(config_.get_bool("yes"));
  EXPECT_FALSE(config_.get_bool("absent", false));
  expect_bad("n is 7, must be true or false", [&] { config_.get_bool("n"); });
  EXPECT_EQ(config_.get_string("text"), "abc");
  EXPECT_EQ(config_.get_string("absent", "d"), "d");
  expect_bad("n is 7, must be a string", [&] { config_.get_string("n"); });
  EXPECT_EQ(config_.get_int_array("list", 0, 9, 3), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(config_.get_int_array("n", 0, 9, 3), (std::vector<int64_t>{7}));
  EXPECT_TRUE(config_.get_int_array("absent", 0, 9, 3).empty());
  EXPECT_EQ(config_.get_string_array("names", 2), (std::vector<std::string>{"a", "b"}));
  expect_bad("list has 3 elements, more than 2", [&] { config_.get_int_array("list", 0, 9, 2); });
  expect_bad("mixed[1] is \"b\"", [&] { config_.get_int_array("mixed", 0, 9, 2); });
  expect_bad("mixed holds 1 at 0, must hold strings",
             [&] { config_.get_string_array("mixed", 2); });
  expect_bad("text is \"abc\", must be an array", [&] { config_.get_int_array("text", 0, 9, 2); });
}

TEST_F(ConfigReaderTest, NestedObjectsNameTheirPath) {
  EXPECT_FALSE(config_.get_object("absent"));
  const auto rope = config_.get_object("rope_scaling");
  ASSERT_TRUE(rope);
  expect_bad("rope_scaling.factor is -2, must be 1 … 64",
             [&] { rope->get_double("factor", 1, 64); });
  expect_bad("rope_scaling.deep.z is \"q\"", [&] { rope->get_object("deep")->get_bool("z"); });
  expect_bad("n is 7, must be an object", [&] { config_.get_object("n"); });
  const json list = json::array();
  expect_error(ErrorCode::kCorruptData, "c.json: not a JSON object",
               [&] { ConfigReader(list, "c.json"); });
}

TEST(ParseJson, Limits) {
  const auto nested = [](int depth) {
    return std::string(size_t(depth), '[') + std::string(size_t(depth), ']');
  };
  EXPECT_NO_THROW(parse_json(nested(64), "x"));
  expect_error(ErrorCode::kCorruptData, "x: JSON nested more than 64 deep",
               [&] { parse_json(nested(65), "x"); });
  expect_error(ErrorCode::kCorruptData, "nested more than 64",
               [&] { parse_json(std::string(1 << 20, '['), "x"); });
  expect_error(ErrorCode::kResourceExhausted, "x: 3 bytes of JSON, more than 2",
               [] { parse_json("[1]", "x", {.bytes = 2}); });
  for (const char* bad : {"", "{", "[1,]", "nul", "1e999", "{\"a\":1}}", "NaN"})
    expect_error(ErrorCode::kCorruptData, "x: not valid JSON", [&] { parse_json(bad, "x"); });
  EXPECT_EQ(parse_json(R"({"a":1,"a":2})", "x")["a"], 2);
  // A key may come back at another level.
  const JsonLimits strict{.refuse_duplicate_keys = true};
  EXPECT_NO_THROW(parse_json(R"({"a":{"a":1},"b":[{"a":1},{"a":2}]})", "x", strict));
  expect_error(ErrorCode::kCorruptData, "x: \"a\" appears twice",
               [&] { parse_json(R"([{"b":{"a":1,"a":2}}])", "x", strict); });
}

TEST(Printable, KeepsTextAndReplacesTheRest) {
  EXPECT_EQ(printable("blk.0.häß→🥟"), "blk.0.häß→🥟");
  EXPECT_EQ(printable(std::string("a\nb\0c\x7f", 6)), "a?b?c?");
  EXPECT_EQ(printable("\xff\xc3(\xe2\x82"), std::string(2, '?') + "(" + std::string(2, '?'));
  // Overlong forms, a surrogate, beyond U+10FFFF.
  EXPECT_EQ(printable("\xE0\x80\xAF|\xF0\x80\x80\xAF|\xED\xA0\x80|\xF4\x90\x80\x80"),
            "???|????|???|????");
  EXPECT_EQ(printable(std::string(200, 'x')), std::string(120, 'x') + "…");
}

}  // namespace
}  // namespace mantou::hub
