// The server's own description: an OpenAPI 3.1 document of its routes, what they take and what they
// answer. Pure functions; any thread. Limits are those of the code that reads the requests;
// tests/schemathesis holds a running server to the document.
#pragma once

#include <string>

#include "server/json_fields.h"

namespace mantou::server {

// `version`: this program's. `vocab_size`: of the model that is served.
Json openapi_document(const std::string& version, int vocab_size);

// What components/schemas has of requests and of replies, by name.
Json request_schemas(int vocab_size);
Json reply_schemas();

}  // namespace mantou::server
