#include "server/grammar_fields.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "server/refused_fields.h"

namespace mantou::server {
namespace {

using text::GrammarKind;
using text::GrammarSource;

GrammarSource schema_of(const Json& schema, std::string_view name) {
  if (!schema.is_object() && !schema.is_boolean())
    Fields::wrong(std::string(name), "a JSON schema", schema);
  return {GrammarKind::kJsonSchema, to_text(schema), {}};
}

GrammarSource text_of(GrammarKind kind, const Json& value, std::string_view name) {
  if (!value.is_string() || value.get_ref<const std::string&>().empty())
    Fields::wrong(std::string(name), "a text that is not empty", value);
  return {kind, value.get<std::string>(), {}};
}

// llama-server's grammars are GBNF; vLLM also takes Lark.
GrammarSource grammar_of(const Json& value, std::string_view name) {
  const GrammarSource source = text_of(GrammarKind::kGbnf, value, name);
  const bool is_gbnf = source.text.find("::=") != std::string::npos;
  return {is_gbnf ? GrammarKind::kGbnf : GrammarKind::kLark, source.text, {}};
}

GrammarSource regex_of(const Json& value, std::string_view name) {
  return text_of(GrammarKind::kRegex, value, name);
}

GrammarSource choice_of(const Json& value, std::string_view name) {
  GrammarSource source{GrammarKind::kChoice, {}, {}};
  if (!value.is_array() || value.empty())
    Fields::wrong(std::string(name), "an array of at least one text", value);
  for (const Json& text : value) {
    if (!text.is_string()) Fields::wrong(std::string(name), "an array of texts", text);
    source.choices.push_back(text.get<std::string>());
  }
  return source;
}

GrammarSource object_of(const Json& value, std::string_view name) {
  if (!value.is_boolean()) Fields::wrong(std::string(name), "true or false", value);
  return {GrammarKind::kJsonObject, {}, {}};
}

// {"type": "text" | "json_object" | "json_schema", "json_schema": {"schema": …}}; llama-server's
// json_object may bring a schema, too.
std::optional<GrammarSource> response_format_of(const Json& value) {
  const Fields format(value, "response_format");
  if (value.empty()) return std::nullopt;
  std::string type;
  if (!format.read("type", type))
    fail_param(ErrorCode::kInvalidArgument, "response_format.type",
               "'response_format.type' is required");
  if (type == "text") return std::nullopt;
  if (type == "json_object") {
    const Json* schema = format.find("schema");
    if (schema != nullptr) return schema_of(*schema, "response_format.schema");
    return GrammarSource{};
  }
  if (type != "json_schema")
    Fields::wrong("response_format.type", "text, json_object or json_schema", type);
  const Json* wrapped = format.find("json_schema");
  if (wrapped == nullptr)
    fail_param(ErrorCode::kInvalidArgument, "response_format.json_schema",
               "'response_format.json_schema' is required");
  const Fields inner(*wrapped, "response_format.json_schema");
  const Json* schema = inner.find("schema");
  if (schema == nullptr)
    fail_param(ErrorCode::kInvalidArgument, "response_format.json_schema.schema",
               "'response_format.json_schema.schema' is required");
  return schema_of(*schema, "response_format.json_schema.schema");
}

struct Way {
  std::string_view name;
  GrammarSource (*read)(const Json&, std::string_view name);
};
constexpr Way kWays[] = {{"guided_grammar", grammar_of}, {"guided_json", schema_of},
                         {"guided_regex", regex_of},     {"guided_choice", choice_of},
                         {"json_schema", schema_of},     {"grammar", grammar_of}};
constexpr Way kStructured[] = {{"grammar", grammar_of},
                               {"json", schema_of},
                               {"regex", regex_of},
                               {"choice", choice_of},
                               {"json_object", object_of}};
// vLLM's further members that change the text.
constexpr RefusedField kNotStructured[] = {
    {"structural_tag", "use a grammar"},
    {"whitespace_pattern", "use a grammar"},
    {"disable_any_whitespace", "use a grammar"},
    {"disable_additional_properties", "say it in the schema"}};

Json parse_schema(const std::string& text, const std::string& name) try {
  return parse_json(text);
} catch (const Error& error) {
  fail_param(error.code(), name, "'{}' must be a JSON schema or the text of one: {}", name,
             error.message());
}

// Schemas may also come as their text, to which the limits of a body's JSON apply.
GrammarSource read_way(const Way& way, const Json& value, const std::string& name) {
  if (way.read == schema_of && value.is_string())
    return schema_of(parse_schema(value.get_ref<const std::string&>(), name), name);
  return way.read(value, name);
}

// A way that is not known would otherwise ask for nothing without anybody noticing. Clients also
// send all the members there are, with null in them.
void require_way(const Json& value, const Fields& structured) {
  if (std::all_of(value.begin(), value.end(), is_off)) return;
  std::string names;
  for (const Way& way : kStructured) {
    if (structured.find(way.name) != nullptr) return;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", way.name);
  }
  fail_param(ErrorCode::kInvalidArgument, "structured_outputs",
             "'structured_outputs' must hold one of {}", names);
}

}  // namespace

void add_grammar(GrammarField wanted, std::optional<GrammarField>& all) {
  if (all && !(all->source == wanted.source))
    fail_param(ErrorCode::kInvalidArgument, wanted.field, "'{}' and '{}' ask for different things",
               all->field, wanted.field);
  all = std::move(wanted);
}

std::optional<GrammarField> read_grammar(const Fields& fields) {
  std::optional<GrammarField> found;
  const auto take = [&](GrammarSource source, std::string name) {
    add_grammar({std::move(source), std::move(name)}, found);
  };
  const auto is_set = [](const Json* value) {
    if (value == nullptr || value->is_null() || *value == false) return false;
    return !value->is_string() || !value->get_ref<const std::string&>().empty();
  };
  for (const Way& way : kWays)
    if (const Json* value = fields.find(way.name); is_set(value))
      take(read_way(way, *value, std::string(way.name)), std::string(way.name));
  if (const Json* value = fields.find("structured_outputs"); is_set(value)) {
    const Fields inner(*value, "structured_outputs");
    refuse(inner, kNotStructured);
    require_way(*value, inner);
    for (const Way& way : kStructured)
      if (const Json* each = inner.find(way.name); is_set(each))
        take(read_way(way, *each, inner.path_of(way.name)), inner.path_of(way.name));
  }
  for (const std::string_view name : {"response_format", "responseFormat"})
    if (const Json* value = fields.find(name); is_set(value))
      if (auto source = response_format_of(*value)) take(*std::move(source), "response_format");
  return found;
}

}  // namespace mantou::server
