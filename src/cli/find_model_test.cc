// --model and --hf-repo against a hub on loopback.
#include "cli/find_model.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "hub/download/test_hub.h"
#include "hub/expect_error.h"
#include "hub/test_files.h"

namespace mantou::cli {
namespace {

namespace fs = std::filesystem;
using hub::testing::expect_error;

class FindModelTest : public ::testing::Test {
 protected:
  FindModelTest() {
    hub_.add("org/m-GGUF", "m-Q4_K_M.gguf", "four", true);
    hub_.add("org/m-GGUF", "m-Q8_0.gguf", "eight", true);
    set("HF_ENDPOINT", hub_.url());
    set("HF_HOME", root_.path() / "hf");
    set("HF_TOKEN", "");
    set("HF_HUB_OFFLINE", "");
    set("HF_HUB_CACHE", root_.path() / "hub");
    set("MANTOU_CACHE", root_.path() / "own");
  }
  ~FindModelTest() override {
    for (const auto& [name, value] : saved_)
      value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
  }
  void set(const std::string& name, const std::string& value) {
    const char* old = std::getenv(name.c_str());
    saved_.try_emplace(name, old ? std::optional<std::string>(old) : std::nullopt);
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  static fs::path find(const std::string& model, const std::string& repo, bool offline = false) {
    ModelOptions options;
    options.model = model;
    options.hf_repo = repo;
    options.offline = offline;
    return find_model(options);
  }

  hub::testing::TempDirectory root_;
  hub::testing::TestHub hub_;
  std::map<std::string, std::optional<std::string>> saved_;
};

TEST_F(FindModelTest, FetchesWhatIsMissingOnce) {
  EXPECT_EQ(read_file(find("org/m-GGUF", "")), "four");
  const size_t requests = hub_.requests().size();
  EXPECT_EQ(read_file(find("org/m-GGUF", "")), "four");
  EXPECT_EQ(read_file(find("m-gguf", "")), "four");
  EXPECT_EQ(read_file(find("starter", "org/m-GGUF")), "four");
  EXPECT_EQ(hub_.requests().size(), requests);
  EXPECT_EQ(read_file(find("org/m-GGUF:Q8_0", "")), "eight");
  EXPECT_EQ(read_file(find("org/m-GGUF:m-Q8_0.gguf", "", true)), "eight");
  EXPECT_EQ(read_file(find("", "org/m-GGUF")), "four");  // the default of the two
  EXPECT_EQ(read_file(find("", "org/m-GGUF:q8_0", true)), "eight");
}

TEST_F(FindModelTest, OfflineFetchesNothing) {
  expect_error(ErrorCode::kNotFound, "org/m-GGUF is not (or not whole) in",
               [] { find("org/m-GGUF", "", true); });
  set("HF_HUB_OFFLINE", "1");
  expect_error(ErrorCode::kNotFound, "HF_HUB_OFFLINE forbids fetching it",
               [] { find("org/m-GGUF", ""); });
  expect_error(ErrorCode::kNotFound, "org/m-GGUF:Q8_0 is not (or not whole) in",
               [] { find("", "org/m-GGUF:Q8_0"); });
  EXPECT_TRUE(hub_.requests().empty());
}

TEST_F(FindModelTest, OtherNamesAreNeverLookedUp) {
  for (const char* name : {"nothing", "./org/m", "/org/m", "org/m.gguf", "a/b/c"})
    EXPECT_THROW(find(name, ""), Error) << name;
  expect_error(ErrorCode::kInvalidArgument, "is no repository's name", [] { find("", "../x"); });
  EXPECT_TRUE(hub_.requests().empty());
}

TEST_F(FindModelTest, TokensComeFromTheEnvironmentOrTheFile) {
  root_.write("hf/token", std::string_view("hf_file\n"));
  EXPECT_EQ(fetch_options(false).endpoint.token, "hf_file");
  set("HF_TOKEN", "hf_variable");
  EXPECT_EQ(fetch_options(false).endpoint.token, "hf_variable");
  set("HF_TOKEN", "hf_a\r\nX: b");
  expect_error(ErrorCode::kInvalidArgument, "HF_TOKEN", [] { fetch_options(false); });
}

}  // namespace
}  // namespace mantou::cli
