// JSON values as text. Stateless; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace mantou {

// Invalid UTF-8 becomes U+FFFD: strings may hold what came from outside. An indent of -1 makes one
// line.
template <class Json>
std::string to_text(const Json& json, int indent = -1, bool ascii = false) {
  return json.dump(indent, ' ', ascii, Json::error_handler_t::replace);
}

}  // namespace mantou
