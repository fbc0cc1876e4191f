// The fields about tools: which there are, which may be called, and whether one must be. Pure
// functions; any thread.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "server/generation_fields.h"

namespace mantou::server {

// tools, tool_choice and parallel_tool_calls. Errors (kInvalidArgument) name the field.
void read_tools(const Fields& fields, ChatRequest& request);

// The names of a request's tools as they are read.
class ToolNames {
 public:
  // Of the tool `fields`. kInvalidArgument: it is no text, empty, or that of an earlier tool, so
  // that nobody could tell which of them is called.
  std::string read(const Fields& fields);

 private:
  std::set<std::string> seen_;
};

// Those of `tools` (OpenAI's) that `names` names; kInvalidArgument with param `field` for what is
// none of them.
Json tools_named(const Json& tools, const std::vector<std::string>& names, const char* field);

}  // namespace mantou::server
