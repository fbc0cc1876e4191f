// Pieces of JSON Schema (2020-12, which OpenAPI 3.1 takes as it is) as values. Pure functions; any
// thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>

#include "server/json_fields.h"

namespace mantou::server::schema {

inline constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();

Json number(double low, double high);
Json number();
Json integer(int64_t low = kLowest, int64_t high = Fields::kMaxInt);
Json boolean();
Json text();
Json filled_text();  // at least one character
Json one_text(std::initializer_list<const char*> texts);

// Of so many items, 0: of any number.
Json list(Json items, size_t most = 0);
Json filled_list(Json items, size_t most = 0);  // of at least one

// With members that must be there; others may be, too.
Json object(Json properties, std::initializer_list<const char*> required = {});
Json any_object();
// An object of a request: members that are not required may also be null, which is leaving them
// out.
Json fields(Json properties, std::initializer_list<const char*> required = {});
// An object of a reply: all members are there.
Json members(Json properties);

Json any_of(std::initializer_list<Json> schemas);
Json all_of(std::initializer_list<Json> schemas);
Json or_null(Json schema);
Json ref(std::string_view component);  // of components/schemas
Json described(Json schema, std::string_view description);

}  // namespace mantou::server::schema
