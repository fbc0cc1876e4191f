#include "server/openapi/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace mantou::server::schema {
namespace {

Json array_of(std::initializer_list<Json> values) {
  Json array = Json::array();
  for (const Json& value : values) array.push_back(value);
  return array;
}

Json typed(const char* type) { return {{"type", type}}; }

}  // namespace

Json number(double low, double high) {
  return {{"type", "number"}, {"minimum", low}, {"maximum", high}};
}

Json number() { return typed("number"); }

Json integer(int64_t low, int64_t high) {
  return {{"type", "integer"}, {"minimum", low}, {"maximum", high}};
}

Json boolean() { return typed("boolean"); }

Json text() { return typed("string"); }

Json filled_text() { return {{"type", "string"}, {"minLength", 1}}; }

Json one_text(std::initializer_list<const char*> texts) {
  Json schema = text();
  for (const char* each : texts) schema["enum"].push_back(each);
  return schema;
}

Json list(Json items, size_t most) {
  Json schema = {{"type", "array"}, {"items", std::move(items)}};
  if (most > 0) schema["maxItems"] = most;
  return schema;
}

Json filled_list(Json items, size_t most) {
  Json schema = list(std::move(items), most);
  schema["minItems"] = 1;
  return schema;
}

Json object(Json properties, std::initializer_list<const char*> required) {
  Json schema = {{"type", "object"}, {"properties", std::move(properties)}};
  for (const char* name : required) schema["required"].push_back(name);
  return schema;
}

Json any_object() { return typed("object"); }

Json fields(Json properties, std::initializer_list<const char*> required) {
  Json schema = object(std::move(properties), required);
  for (auto& [name, property] : schema["properties"].items()) {
    const bool is_required = std::find(required.begin(), required.end(), name) != required.end();
    if (!is_required) property = or_null(std::move(property));
  }
  return schema;
}

Json members(Json properties) {
  Json names = Json::array();
  for (const auto& [name, property] : properties.items()) names.push_back(name);
  Json schema = object(std::move(properties));
  schema["required"] = std::move(names);
  return schema;
}

Json any_of(std::initializer_list<Json> schemas) { return {{"anyOf", array_of(schemas)}}; }

Json all_of(std::initializer_list<Json> schemas) { return {{"allOf", array_of(schemas)}}; }

Json or_null(Json schema) {
  if (schema.contains("anyOf")) {
    schema["anyOf"].push_back(typed("null"));
  } else if (schema.contains("$ref")) {
    schema = any_of({std::move(schema), typed("null")});
  } else if (schema.contains("type")) {
    Json& type = schema["type"];
    if (!type.is_array()) type = Json::array({type});
    type.push_back("null");
    if (schema.contains("enum")) schema["enum"].push_back(nullptr);
  }
  return schema;
}

Json ref(std::string_view component) {
  return {{"$ref", fmt::format("#/components/schemas/{}", component)}};
}

Json described(Json schema, std::string_view description) {
  schema["description"] = description;
  return schema;
}

}  // namespace mantou::server::schema
