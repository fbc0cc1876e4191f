// JSON schemas: what they accept, what is refused, and that no text they allow breaks them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "base/error.h"
#include "text/grammar_test_helper.h"

namespace mantou::text {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::shared_ptr<const Grammar> compile(const std::string& schema) {
  return Grammar::compile(small_tokenizer(), {.kind = GrammarKind::kJsonSchema, .text = schema});
}

void expect_refused(const std::string& schema, const std::string& message) {
  try {
    compile(schema);
    ADD_FAILURE() << "no error: " << schema;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.message(), HasSubstr(message)) << schema;
  }
}

struct Instances {
  const char* schema;
  std::vector<const char*> good, bad;
};

// By hand, after the specification (2020-12) and what docs/text.md says is narrower here.
const Instances kInstances[] = {
    {"true", {"1", "\"a\"", "[]", "{\"a\": null}"}, {"", "nul", "01", "'a'"}},
    {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string","maxLength":3}},
         "required":["a"],"additionalProperties":false})",
     {R"({"a":1})", R"({"a": -12, "b": "xyz"})", "{\n  \"a\": 0\n}"},
     {"{}", R"({"b":"x"})", R"({"a":1.5})", R"({"a":1,"b":"wxyz"})", R"({"a":1,"c":2})",
      R"({"a":1,"a":2})"}},
    // A property's name cannot be spelled in another way to get around its schema.
    {R"({"type":"object","properties":{"a":{"type":"integer"}}})",
     {R"({"a":1,"b":"x"})", R"({"b":"x"})"},
     {R"({"a":"x"})", R"({"a":1,"\u0061":"x"})", R"({"\u0061":"x"})"}},
    {R"({"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":2})",
     {"[true]", "[ true, false ]"},
     {"[]", "[true,true,true]", "[1]"}},
    {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false})",
     {"[]", "[1]", "[1,\"a\"]"},
     {"[\"a\"]", "[1,\"a\",2]"}},
    {R"({"type":"array","items":[{"type":"integer"}],"additionalItems":false,"anyOf":[{"minItems":1}]})",
     {"[1]"},
     {"[]", "[1,2]", "[null]"}},
    {R"({"enum":["a",1,null,{"x":[1,2]}]})",
     {"\"a\"", "1", "null", R"({"x": [1, 2]})"},
     {"\"b\"", "2", R"({"x":[1]})", R"({"x":[1,2],"y":1})"}},
    {R"({"const":0.1})", {"0.1"}, {"0.11", "0", "1"}},
    {R"({"type":"integer","minimum":3,"exclusiveMaximum":10,"multipleOf":2})",
     {"4", "6", "8"},
     {"2", "3", "10", "4.5"}},
    {R"({"type":"number","minimum":1,"exclusiveMinimum":true,"maximum":2.5})",
     {"1.5", "2", "2.5", "1.01"},
     {"1", "1.0", "2.51", "3", "-1.5"}},
    {R"({"type":"integer","format":"int32"})",
     {"2147483647", "-2147483648", "0"},
     {"2147483648", "-2147483649", "0.5"}},
    {R"({"type":"string","minLength":2,"maxLength":3})",
     {"\"ab\"", "\"ab\xC3\xA9\"", R"("\n\"")"},
     {"\"a\"", "\"abcd\""}},
    {R"({"type":"string","pattern":"^[a-c]+\\d$"})", {"\"ab1\""}, {"\"1\"", "\"ab\"", "\"xab1\""}},
    {R"({"$ref":"#/$defs/a%3Cb%3E~1c","$defs":{"a<b>/c":{"type":"null"}}})", {"null"}, {"1"}},
    {R"({"const":"a\n\"\\\t"})", {R"("a\n\"\\\t")"}, {R"("a")"}},
    {R"({"type":"string","pattern":"b"})", {"\"abc\"", "\"b\""}, {"\"\"", "\"ac\""}},
    {R"({"type":"string","format":"date"})",
     {"\"2024-02-29\""},
     {"\"2024-13-01\"", "\"2024-2-1\""}},
    {R"({"type":["string","null"],"enum":["a",null,5]})", {"\"a\"", "null"}, {"5", "\"b\""}},
    {R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})",
     {"12", "\"a\""},
     {"\"ab\"", "1.5", "null"}},
    {R"({"oneOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"$defs":{
         "a":{"type":"object","properties":{"k":{"const":"a"},"n":{"type":"integer"}},"required":["k","n"]},
         "b":{"type":"object","properties":{"k":{"enum":["b","c"]}},"required":["k"]}}})",
     {R"({"k":"a","n":1})", R"({"k":"c"})"},
     {R"({"k":"a"})", R"({"k":"d"})", R"({"k":"a","n":"x"})"}},
    {R"({"type":"object","allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},
         {"properties":{"b":{"type":"string"}}}]})",
     {R"({"a":1})", R"({"a":1,"b":"x"})"},
     {"{}", R"({"a":1,"b":2})", R"({"b":"x"})"}},
    {R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object",
         "properties":{"v":{"type":"integer"},"next":{"$ref":"#/$defs/node"}},
         "required":["v"],"additionalProperties":false}}})",
     {R"({"v":1})", R"({"v":1,"next":{"v":2,"next":{"v":3}}})"},
     {R"({"v":1,"next":{}})", R"({"next":{"v":1}})"}},
    {R"({"type":"object","patternProperties":{"^x":{"type":"integer"}},"additionalProperties":false,
         "minProperties":1})",
     {R"({"x1":1})"},
     {"{}", R"({"y":1})", R"({"x1":"a"})"}},
    {R"({"$schema":"http://json-schema.org/draft-07/schema#","$id":"https://example.org/s","title":"T",
         "type":"object","x-note":{"not":{}},"properties":{"title":{"type":"string","default":3}},
         "required":["title"],"uniqueItems":false,"unevaluatedProperties":true})",
     {R"({"title":"a"})"},
     {R"({"title":3})"}},
};

TEST(JsonSchema, AcceptsAndRejectsInstances) {
  for (const Instances& c : kInstances) {
    const auto grammar = compile(c.schema);
    for (const char* text : c.good)
      EXPECT_TRUE(accepts(*grammar, text)) << c.schema << "\n" << text;
    for (const char* text : c.bad)
      EXPECT_FALSE(accepts(*grammar, text)) << c.schema << "\n" << text;
  }
}

// An object of so many optional properties, "p0" and so on, all of them integers.
std::string with_optional(int count) {
  std::string properties;
  for (int i = 0; i < count; ++i)
    properties += fmt::format(R"({}"p{}":{{"type":"integer"}})", i ? "," : "", i);
  return fmt::format(R"({{"type":"object","properties":{{{}}},"additionalProperties":false}})",
                     properties);
}

TEST(JsonSchema, ManyOptionalProperties) {
  const auto grammar = compile(with_optional(1000));
  EXPECT_TRUE(accepts(*grammar, R"({"p0":1,"p500":2,"p999":3})"));
  EXPECT_TRUE(accepts(*grammar, "{\n\n        \"p999\": 3\n}"));
  EXPECT_FALSE(accepts(*grammar, R"({"p500":2,"p0":1})"));
  EXPECT_FALSE(accepts(*grammar, R"({"p1000":1})"));
  expect_refused(with_optional(1001), "/properties: 1001 properties that are not required");
}

// Nothing is left out in silence: the message names the place.
const struct {
  const char* schema;
  const char* message;
} kRefused[] = {
    {R"({"properties":{"a":{"not":{}}}})", R"(/properties/a/not: the keyword "not")"},
    {R"({"if":{},"then":{}})", "/if"},
    {R"({"type":"array","contains":{"type":"null"}})", "/contains"},
    {R"({"type":"array","items":{"type":"array","uniqueItems":true}})", "/items/uniqueItems"},
    {R"({"propertyNames":{"maxLength":3}})", "/propertyNames"},
    {R"({"dependentRequired":{"a":["b"]}})", "/dependentRequired"},
    {R"({"dependentSchemas":{}})", "/dependentSchemas"},
    {R"({"dependencies":{}})", "/dependencies"},
    {R"({"unevaluatedProperties":false})", "/unevaluatedProperties"},
    {R"({"unevaluatedItems":false})", "/unevaluatedItems"},
    {R"({"$dynamicRef":"#a"})", "/$dynamicRef"},
    {R"({"$recursiveRef":"#"})", "/$recursiveRef"},
    {R"({"anyOf":[{},{"type":"string","nullable":true}]})", "/anyOf/1/nullable"},
    {R"({"properties":{"a/b":{"requierd":[]}}})",
     R"(/properties/a~1b/requierd: the keyword "requierd")"},
    // Unknown to a draft, but meant.
    {R"({"$schema":"http://json-schema.org/draft-04/schema#","contains":{}})", "/contains"},
    {R"({"$defs":{"x":{"not":{}}},"type":"null"})", "/$defs/x/not"},
    {R"({"type":"strin"})", R"(/type: there is no type "strin")"},
    {R"({"type":[]})", "/type"},
    {R"({"type":"string","format":"regex"})", R"(/format: the format "regex")"},
    {R"({"type":"string","format":"unknown"})", "/format"},
    {R"({"type":"integer","format":"date-time2"})", "/format"},
    {R"~({"type":"string","pattern":"a(?=b)"})~", "/pattern: look-around"},
    {R"({"type":"string","pattern":"[a&&b]"})", "/pattern: && within"},
    {R"({"type":"string","pattern":"[[a]"})", "/pattern: a [ within"},
    {R"({"type":"object","patternProperties":{"(":{}}})", "/patternProperties/(: unclosed group"},
    {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "/oneOf: alternatives 0 and 1"},
    {R"({"oneOf":[{"type":"object"},{"type":"null"},{"type":"object","required":["a"]}]})",
     "/oneOf: alternatives 0 and 2"},
    {R"({"minProperties":2})", "/minProperties"},
    {R"({"properties":{"a":{},"b":{}},"maxProperties":1})", "/maxProperties"},
    {R"({"const":12345678901234567890})", "/const: numbers beyond 2^53"},
    {R"({"enum":[[1e300]]})", "/enum/0: numbers beyond 2^53"},
    {R"({"enum":[]})", "/enum"},
    {R"({"multipleOf":0})", "/multipleOf: must be positive"},
    {R"({"minLength":-1})", "/minLength"},
    {R"({"maxItems":99999999999})", "/maxItems: is too large"},
    {R"({"required":"a"})", "/required"},
    {R"({"properties":[]})", "/properties"},
    {R"({"items":{"$id":"x"}})", "/items/$id"},
    {R"({"items":3})", "/items: a schema is an object or a boolean"},
    {R"({"items":[{}],"prefixItems":[{}]})", "/items: beside prefixItems"},
    {R"({"$ref":"other.json"})", "/$ref: only references within"},
    {R"({"$ref":"#/$defs/b","$defs":{"a":{}}})", R"(/$ref: there is no schema at "/$defs/b")"},
    {R"({"$ref":"#/default","default":{"not":{}}})", "/$ref: there is no schema"},
    {R"({"const":"a\u0001b"})", "/const: the control character \\x01"},
    {R"({"enum":[1,["a\u007fb"]]})", "/enum/1: the control character \\x7f"},
    {R"({"type":"string","pattern":"a\\x00b"})", "/pattern: the control character \\x00"},
    {R"({"$ref":"#"})", "/$ref: the reference leads back to itself"},
    {R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})",
     "leads back to itself"},
    {R"({"$ref":"#/%zz"})", "/$ref: wrong %-escapes"},
    {R"({"$ref":"#a","$defs":{"a":{"$anchor":"a"}}})", "/$ref: references to anchors"},
    {R"({"x-guidance":{"lenient":true},"not":{}})", "/not"},
    {"{", "not JSON"},
    {"3", "a schema is an object or a boolean"},
};

TEST(JsonSchema, RefusesWhatItCannotEnforce) {
  for (const auto& c : kRefused) expect_refused(c.schema, c.message);
}

// A validator of the keywords below, after the specification.
class Validator {
 public:
  explicit Validator(const json& root) : root_(root) {}

  bool holds(const json& schema, const json& value) const {
    if (schema.is_boolean()) return schema.get<bool>();
    for (const auto& [keyword, wanted] : schema.items())
      if (!keyword_holds(keyword, wanted, schema, value)) return false;
    return true;
  }

 private:
  static bool has_type(const std::string& type, const json& value) {
    if (type == "integer") return value.is_number() && std::fmod(value.get<double>(), 1) == 0;
    if (type == "number") return value.is_number();
    return type == value.type_name();
  }

  int count(const json& schemas, const json& value) const {
    int holding = 0;
    for (const json& schema : schemas) holding += holds(schema, value);
    return holding;
  }

  bool keyword_holds(const std::string& keyword, const json& wanted, const json& schema,
                     const json& value) const {
    if (keyword == "type") {
      if (wanted.is_string()) return has_type(wanted, value);
      return std::any_of(wanted.begin(), wanted.end(),
                         [&](const json& type) { return has_type(type, value); });
    }
    if (keyword == "const") return value == wanted;
    if (keyword == "enum") return std::find(wanted.begin(), wanted.end(), value) != wanted.end();
    if (keyword == "$ref")
      return holds(root_.at(json::json_pointer(wanted.get<std::string>().substr(1))), value);
    if (keyword == "anyOf") return count(wanted, value) > 0;
    if (keyword == "oneOf") return count(wanted, value) == 1;
    if (keyword == "allOf") return count(wanted, value) == int(wanted.size());
    if (value.is_number()) return number_holds(keyword, wanted, value.get<double>());
    if (value.is_string()) return string_holds(keyword, wanted, value);
    if (value.is_array()) return array_holds(keyword, wanted, value);
    return !value.is_object() || object_holds(keyword, wanted, schema, value);
  }

  static bool number_holds(const std::string& keyword, const json& wanted, double value) {
    if (keyword == "minimum") return value >= wanted.get<double>();
    if (keyword == "maximum") return value <= wanted.get<double>();
    if (keyword == "exclusiveMinimum") return value > wanted.get<double>();
    if (keyword == "exclusiveMaximum") return value < wanted.get<double>();
    return keyword != "multipleOf" || std::fmod(value, wanted.get<double>()) == 0;
  }

  static bool string_holds(const std::string& keyword, const json& wanted,
                           const std::string& value) {
    const auto length =
        std::count_if(value.begin(), value.end(), [](char c) { return (c & 0xC0) != 0x80; });
    if (keyword == "minLength") return length >= wanted.get<int>();
    if (keyword == "maxLength") return length <= wanted.get<int>();
    return keyword != "pattern" || std::regex_search(value, std::regex(wanted.get<std::string>()));
  }

  bool array_holds(const std::string& keyword, const json& wanted, const json& value) const {
    if (keyword == "minItems") return value.size() >= wanted.get<size_t>();
    if (keyword == "maxItems") return value.size() <= wanted.get<size_t>();
    return keyword != "items" || count_items(wanted, value) == value.size();
  }

  size_t count_items(const json& schema, const json& value) const {
    return size_t(std::count_if(value.begin(), value.end(),
                                [&](const json& item) { return holds(schema, item); }));
  }

  bool object_holds(const std::string& keyword, const json& wanted, const json& schema,
                    const json& value) const {
    if (keyword == "required")
      return std::all_of(wanted.begin(), wanted.end(),
                         [&](const json& name) { return value.contains(name); });
    const json properties = schema.value("properties", json::object());
    for (const auto& [name, member] : value.items()) {
      if (keyword == "properties" && wanted.contains(name) && !holds(wanted[name], member))
        return false;
      if (keyword == "additionalProperties" && !properties.contains(name) && !holds(wanted, member))
        return false;
    }
    return keyword != "minProperties" || value.size() >= wanted.get<size_t>();
  }

  const json& root_;
};

TEST(JsonSchema, RandomTextsSatisfyTheirSchema) {
  const char* const schemas[] = {
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string","maxLength":5}},"required":["b"]})",
      R"({"type":"array","items":{"type":"number","minimum":-3.5,"exclusiveMaximum":12},"minItems":2,"maxItems":5})",
      R"({"type":"object","additionalProperties":{"type":"boolean"},"minProperties":1})",
      R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"v":{"enum":[1,"two",null]},
          "next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}}})",
      R"({"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},"x":{"type":"integer"}},"required":["kind","x"]},
          {"type":"object","properties":{"kind":{"const":"b"}},"required":["kind"]},{"type":"array","items":{"type":"null"}}]})",
      R"({"type":"string","pattern":"^[a-z]{2,6}( [0-9]+)?$"})",
      R"({"type":"integer","minimum":17,"maximum":1003,"multipleOf":3})",
      R"({"type":"string","minLength":3,"maxLength":6})",
      R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer","minimum":0}},"required":["a"]},
          {"properties":{"a":{"maximum":9},"c":{"type":["string","null"]}},"required":["c"],"additionalProperties":false}]})",
      R"({"type":"object","properties":{"tags":{"type":"array","items":{"type":"string","maxLength":4},"maxItems":3},
          "size":{"type":"object","properties":{"w":{"type":"number","exclusiveMinimum":0}},"required":["w"],"additionalProperties":false}},
          "required":["tags","size"],"additionalProperties":false})",
  };
  std::mt19937 random(7);
  for (const char* schema : schemas) {
    const auto grammar = compile(schema);
    const json parsed = json::parse(schema);
    for (int i = 0; i < 20; ++i) {
      const std::string text = random_text(*grammar, random);
      const json value = json::parse(text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << schema << "\n" << text;
      EXPECT_TRUE(Validator(parsed).holds(parsed, value)) << schema << "\n" << text;
    }
  }
}

}  // namespace
}  // namespace mantou::text
