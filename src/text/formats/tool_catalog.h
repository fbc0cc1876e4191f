// The tools of one request: their names, and which of their arguments are texts. Immutable.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace mantou::text {

class Tool {
 public:
  explicit Tool(const nlohmann::ordered_json& parameters);  // a JSON schema, or null
  // Whether the schema lets the argument be nothing but a string (or null): what stands between
  // tags is then taken as it is and not as JSON.
  bool is_text(const std::string& argument) const { return texts_.contains(argument); }

 private:
  std::unordered_set<std::string> texts_;
};

// The function of an OpenAI tool; null where it is none that can be called by a name.
const nlohmann::ordered_json* function_of(const nlohmann::ordered_json& tool);

class ToolCatalog {
 public:
  // Null or an array of OpenAI tools; entries that are no functions are passed over.
  explicit ToolCatalog(const nlohmann::ordered_json& tools);
  const Tool* find(std::string_view name) const;  // nullptr: none of that name
  bool empty() const { return tools_.empty(); }

 private:
  std::unordered_map<std::string, Tool> tools_;
};

}  // namespace mantou::text
