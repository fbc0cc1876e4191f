// Fields that other servers know, that would change what an answer means, and that nothing here can
// do: refused by name, unless their value says "off". What is unknown is ignored. Pure functions;
// any thread.
#pragma once

#include <span>
#include <string_view>

#include "server/json_fields.h"

namespace mantou::server {

// Whether the value means the same as leaving the field out: null, false, 0, nothing, "none".
bool is_off(const Json& value);
bool is_true(const Json& value);

struct RefusedField {
  std::string_view name;
  std::string_view instead;  // what to do, or why not
  bool (*is_neutral)(const Json& value) = is_off;
};

// kUnsupported naming the first of them that is there and not neutral.
void refuse(const Fields& fields, std::span<const RefusedField> table);

// The tables: of every way to ask for text, and what each has besides.
void refuse_everywhere(const Fields& fields);
void refuse_in_chat(const Fields& fields);
void refuse_in_completion(const Fields& fields);
void refuse_in_llama_completion(const Fields& fields);

}  // namespace mantou::server
