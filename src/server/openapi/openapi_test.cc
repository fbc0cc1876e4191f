// The document against the server it describes: its routes are the server's, its references lead
// somewhere, and its fields and limits are those that are read and enforced.
#include "server/openapi/openapi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/openapi/schema.h"
#include "server/server_test_support.h"

namespace mantou::server {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// The fields of a request, through what it is put together of.
void collect(const json& document, const json& schema, json& properties) {
  if (schema.contains("$ref")) {
    const std::string pointer = schema["$ref"].get<std::string>().substr(1);
    return collect(document, document.at(json::json_pointer(pointer)), properties);
  }
  for (const json& part : schema.value("allOf", json::array())) collect(document, part, properties);
  properties.update(schema.value("properties", json::object()));
}

// Calls `visit` for every object within `value`.
void for_each_object(const json& value, const std::function<void(const json&)>& visit) {
  if (value.is_object()) visit(value);
  for (const json& inner : value)
    if (inner.is_structured()) for_each_object(inner, visit);
}

// Beyond it are numbers of another kind, which are refused as such.
bool is_end_of_integers(const json& limit) {
  if (limit.is_number_unsigned()) return limit.get<uint64_t>() >= uint64_t(Fields::kMaxInt);
  return limit == schema::kLowest;
}

class OpenApiTest : public ServerTest {
 protected:
  void SetUp() override {
    start();
    TestClient client(port());
    const Reply reply = client.get("/openapi.json");
    ASSERT_EQ(reply.status, 200) << reply.body;
    document_ = reply.json();
  }

  json fields_of(const std::string& path) {
    json properties = json::object();
    const json& body = document_["paths"][path]["post"]["requestBody"];
    collect(document_, body["content"]["application/json"]["schema"], properties);
    return properties;
  }

  // The field that a request is refused for; "" when it is not.
  std::string refused_field(const std::string& path, const json& field) {
    json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                 {"prompt", "Hi"},
                 {"content", "Hi"},
                 {"tokens", {1}},
                 {"stream", false}};
    if (path == "/v1/messages") body["max_tokens"] = 3;
    body.update(field);
    const Reply reply = post(path, body);
    if (reply.status == 200) return {};
    const json error = reply.json()["error"];
    EXPECT_EQ(reply.status, 400) << path << " " << field << " " << reply.body;
    return error.contains("param") ? error["param"].dump() : error["message"].dump();
  }

  json document_;
};

const std::vector<std::string> kPaths = {
    "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/messages/count_tokens",
    "/completion",          "/tokenize",       "/detokenize",  "/apply-template"};

TEST_F(OpenApiTest, RoutesAreTheServers) {
  std::set<std::string> described;
  for (const auto& [path, methods] : document_["paths"].items())
    for (const auto& [method, operation] : methods.items()) {
      const std::string pattern = path.substr(0, path.find('{')) + (path.ends_with('}') ? "*" : "");
      described.insert((method == "post" ? "POST " : "GET ") + pattern);
    }
  TestClient client(port());
  std::set<std::string> served;
  const json routes = client.get("/").json()["routes"];
  for (const json& route : routes) served.insert(route);
  EXPECT_EQ(described, served);
}

TEST_F(OpenApiTest, ReferencesLeadSomewhere) {
  EXPECT_THAT(document_["openapi"].get<std::string>(), StartsWith("3.1."));
  std::set<std::string> ids;
  int references = 0;
  for_each_object(document_, [&](const json& object) {
    if (object.contains("operationId")) {
      EXPECT_TRUE(ids.insert(object["operationId"]).second) << object["operationId"];
    }
    if (!object.contains("$ref") || !object["$ref"].is_string()) return;
    references++;
    const std::string pointer = object["$ref"].get<std::string>().substr(1);
    EXPECT_TRUE(document_.contains(json::json_pointer(pointer))) << pointer;
  });
  EXPECT_GT(references, 50);
}

// A field that nobody read would take any value.
TEST_F(OpenApiTest, EveryFieldIsRead) {
  const json wrong = json::array({json::array({json::object()})});
  for (const std::string& path : kPaths) {
    const json fields = fields_of(path);
    EXPECT_FALSE(fields.empty()) << path;
    for (const auto& [name, schema] : fields.items()) {
      if (name == "model") continue;  // any
      EXPECT_THAT(refused_field(path, {{name, wrong}}), HasSubstr(name)) << path;
    }
  }
}

TEST_F(OpenApiTest, LimitsAreTheServers) {
  int limits = 0;
  for (const std::string& path : kPaths) {
    const json fields = fields_of(path);
    for (const auto& [name, schema] : fields.items())
      for (const auto& [key, step] : {std::pair("minimum", -1), std::pair("maximum", 1)}) {
        if (!schema.contains(key) || is_end_of_integers(schema[key])) continue;
        limits++;
        const json beyond = schema[key].is_number_float() ? json(schema[key].get<double>() + step)
                                                          : json(schema[key].get<int64_t>() + step);
        EXPECT_THAT(refused_field(path, {{name, beyond}}), HasSubstr(name))
            << path << " " << beyond;
        if (name == "best_of" || name == "top_logprobs" || name == "n") continue;  // not alone
        EXPECT_EQ(refused_field(path, {{name, schema[key]}}), "") << path << " " << name;
      }
  }
  EXPECT_GT(limits, 100);
}

TEST_F(OpenApiTest, WantsTheKeyAsOthersDo) {
  for (const auto& [path, methods] : document_["paths"].items())
    for (const auto& [method, operation] : methods.items())
      EXPECT_EQ(operation.contains("security"), path == "/health" || path == "/v1/health") << path;
  EXPECT_EQ(document_["security"], json::parse(R"([{"bearer": []}, {"apiKey": []}])"));
}

}  // namespace
}  // namespace mantou::server
