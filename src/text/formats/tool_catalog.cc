#include "text/formats/tool_catalog.h"

#include <algorithm>

namespace mantou::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxSchemaDepth = 16;  // anyOf within anyOf

bool is_text_type(const Json& type) {
  if (type.is_array()) {
    const auto allowed = [](const Json& t) { return t == "string" || t == "null"; };
    return std::ranges::all_of(type, allowed) && std::ranges::find(type, "string") != type.end();
  }
  return type == "string";
}

bool is_null_schema(const Json& schema) {
  return schema.is_object() && schema.value("type", Json()) == "null";
}

bool is_text_schema(const Json& schema, int depth = 0) {
  if (!schema.is_object() || depth > kMaxSchemaDepth) return false;
  if (const auto type = schema.find("type"); type != schema.end()) return is_text_type(*type);
  if (const auto value = schema.find("const"); value != schema.end()) return value->is_string();
  if (const auto values = schema.find("enum"); values != schema.end())
    return values->is_array() && !values->empty() &&
           std::ranges::all_of(*values, [](const Json& value) { return value.is_string(); });
  for (const char* choice : {"anyOf", "oneOf"}) {
    const auto found = schema.find(choice);
    if (found == schema.end() || !found->is_array()) continue;
    bool any = false, all = true;
    for (const Json& one : *found) {
      const bool text = is_text_schema(one, depth + 1);
      any = any || text;
      all = all && (text || is_null_schema(one));
    }
    return any && all;
  }
  return false;
}

}  // namespace

Tool::Tool(const Json& parameters) {
  if (!parameters.is_object()) return;
  const auto properties = parameters.find("properties");
  if (properties == parameters.end() || !properties->is_object()) return;
  for (const auto& [name, schema] : properties->items())
    if (is_text_schema(schema)) texts_.insert(name);
}

const Json* function_of(const Json& tool) {
  if (!tool.is_object()) return nullptr;
  const auto function = tool.find("function");
  if (function == tool.end() || !function->is_object()) return nullptr;
  const auto name = function->find("name");
  return name != function->end() && name->is_string() ? &*function : nullptr;
}

ToolCatalog::ToolCatalog(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools)
    if (const Json* function = function_of(tool))
      tools_.try_emplace(function->at("name").get<std::string>(),
                         function->value("parameters", Json()));
}

const Tool* ToolCatalog::find(std::string_view name) const {
  const auto found = tools_.find(std::string(name));
  return found == tools_.end() ? nullptr : &found->second;
}

}  // namespace mantou::text
