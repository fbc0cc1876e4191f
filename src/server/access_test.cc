#include "server/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "hub/test_files.h"

namespace mantou::server {
namespace {

using namespace std::string_view_literals;
using hub::testing::TempDirectory;
using testing::ElementsAre;
using testing::HasSubstr;

int status(const Access& access, Headers headers) {
  HttpRequest request;
  request.headers = std::move(headers);
  const auto problem = access.refusal(request);
  return problem ? problem->status : 200;
}

TEST(Access, AnyOfTheKeysOpensInEitherHeader) {
  const Access access({.api_keys = {"one", "second-key"}}, "0.0.0.0");
  for (const char* key : {"one", "second-key"}) {
    EXPECT_EQ(status(access, {{"Authorization", std::string("Bearer ") + key}}), 200);
    EXPECT_EQ(status(access, {{"authorization", std::string("bearer ") + key}}), 200);
    EXPECT_EQ(status(access, {{"X-Api-Key", key}}), 200);
  }
  for (const char* wrong :
       {"", "on", "onee", "One", "onesecond-key", "second-ke", "one,second-key"}) {
    EXPECT_EQ(status(access, {{"Authorization", std::string("Bearer ") + wrong}}), 401) << wrong;
    EXPECT_EQ(status(access, {{"x-api-key", wrong}}), 401) << wrong;
  }
  EXPECT_EQ(status(access, {}), 401);
  EXPECT_EQ(status(access, {{"Authorization", "one"}}), 401);
  EXPECT_EQ(status(access, {{"Authorization", "Basic one"}}), 401);
}

TEST(Access, KeysThatNoHeaderCarriesAreRefusedWithoutBeingShown) {
  for (const char* key : {"", "two words", "tab\t", "\xc3\xa9", "line\n"}) {
    try {
      const Access access({.api_keys = {"good", key}}, "0.0.0.0");
      FAIL() << key;
    } catch (const Error& error) {
      EXPECT_EQ(error.param(), "api-key");
      if (*key) {
        EXPECT_THAT(error.message(), testing::Not(HasSubstr(key)));
      }
    }
  }
}

TEST(Access, KeysComeFromAFile) {
  const TempDirectory directory;
  const std::string file =
      directory.write("keys", "# who has which\n\n  one  \r\n#two\nthree#3\n\tfour"sv);
  EXPECT_THAT(read_api_keys(file), ElementsAre("one", "three#3", "four"));
  for (const std::string_view text : {"", "\n\n", "# none\n"}) {
    const std::string empty = directory.write("empty", text);
    try {
      read_api_keys(empty);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.param(), "api-key-file");
      EXPECT_THAT(error.message(), HasSubstr(empty));
    }
  }
  EXPECT_THROW(read_api_keys(directory.path() / "none"), Error);
}

TEST(Access, OnLoopbackOtherSitesNamesAreRefused) {
  for (const char* host : {"127.0.0.1", "localhost", "::1", "127.3.2.1"}) {
    const Access access({.allowed_hosts = {"box.lan"}}, host);
    for (const char* own :
         {"localhost", "localhost:8080", "LocalHost.:1", "app.localhost:8080", "127.0.0.1:8080",
          "127.0.0.1", "[::1]:8080", "[::1]", "192.168.1.2:80", "box.lan", "BOX.lan:8080"})
      EXPECT_EQ(status(access, {{"Host", own}}), 200) << own << " at " << host;
    for (const char* other : {"evil.example", "evil.example:8080", "127.0.0.1.evil.example",
                              "localhost.evil.example", "notlocalhost", "a.box.lan", "1e.2"})
      EXPECT_EQ(status(access, {{"Host", other}}), 403) << other << " at " << host;
    EXPECT_EQ(status(access, {}), 200) << "HTTP/1.0 has no Host, and no browser speaks it";
  }
  EXPECT_EQ(status(Access({.allowed_hosts = {"*"}}, "127.0.0.1"), {{"Host", "any.example"}}), 200);
}

TEST(Access, NamesDoNotMatterWhereOthersMayConnectOrAKeyIsAskedFor) {
  const Headers other = {{"Host", "name.example"}, {"x-api-key", "k"}};
  EXPECT_EQ(status(Access({}, "0.0.0.0"), other), 200);
  EXPECT_EQ(status(Access({}, "/run/mantou.sock"), other), 200);
  EXPECT_EQ(status(Access({.api_keys = {"k"}}, "127.0.0.1"), other), 200);
}

}  // namespace
}  // namespace mantou::server
