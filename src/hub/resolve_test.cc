// resolve_model and list_models in an HF cache and a models directory made here.
#include "hub/resolve.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "hub/expect_error.h"
#include "hub/test_files.h"

namespace mantou::hub {
namespace {

namespace fs = std::filesystem;
using testing::expect_error;
using testing::TempDirectory;

class ResolveTest : public ::testing::Test {
 protected:
  ResolveTest() : places_{root_.path() / "hub", root_.path() / "models"} {}

  // Files as the hub's clients keep them: links from the snapshot into blobs.
  fs::path add(const std::string& repository, const std::string& revision, const std::string& file,
               const std::string& content = "x") {
    const std::string base = "hub/models--" + repository + "/";
    const fs::path blob = root_.write(base + "blobs/" + revision + file, std::string_view(content));
    const fs::path link = root_.path() / (base + "snapshots/" + revision) / file;
    fs::create_directories(link.parent_path());
    fs::create_symlink(blob, link);
    return link;
  }
  fs::path add_checkpoint(const std::string& repository, const std::string& revision = "r1") {
    add(repository, revision, "config.json", "{}");
    return add(repository, revision, "model.safetensors").parent_path();
  }
  fs::path resolve(const std::string& name) { return resolve_model(name, places_); }
  void expect_bad(ErrorCode code, const std::string& name, const std::string& text) {
    expect_error(code, text, [&] { resolve(name); });
  }

  TempDirectory root_;
  ModelPlaces places_;
};

TEST_F(ResolveTest, Paths) {
  const fs::path file = root_.write("a/one.gguf", std::string_view("x"));
  EXPECT_EQ(resolve(file), file);
  EXPECT_EQ(resolve(file.parent_path()), file);  // the only model of the directory
  root_.write("a/mmproj-F16.gguf", std::string_view("x"));
  EXPECT_EQ(resolve(file.parent_path()), file);
  root_.write("a/two.gguf", std::string_view("x"));
  expect_bad(ErrorCode::kInvalidArgument, file.parent_path(),
             "holds several models; choose one of:");
  const fs::path config = root_.write("b/config.json", std::string_view("{}"));
  EXPECT_EQ(resolve(config.parent_path()), config.parent_path());
  fs::create_directories(root_.path() / "empty");
  expect_bad(ErrorCode::kNotFound, root_.path() / "empty", "the directory holds no model");
  expect_bad(ErrorCode::kNotFound, "./absent/x", "./absent/x: no such file or directory");
  expect_bad(ErrorCode::kNotFound, "absent.gguf", "absent.gguf: no such file or directory");
  expect_bad(ErrorCode::kInvalidArgument, "", "no model was named");
}

TEST_F(ResolveTest, Starter) {
  expect_bad(ErrorCode::kNotFound, "starter", "run scripts/run.sh");
  const fs::path file = root_.write("models/" + std::string(kStarterFile), std::string_view("x"));
  EXPECT_EQ(resolve("starter"), file);
  EXPECT_EQ(resolve("smollm2"), file);
}

TEST_F(ResolveTest, NamesAndPartsOfNames) {
  const fs::path qwen = add_checkpoint("mlx-community--Qwen3-0.6B-4bit");
  const fs::path large = add_checkpoint("mlx-community--Qwen3-4B-4bit");
  const fs::path llama = add_checkpoint("gpt2");
  EXPECT_EQ(resolve("mlx-community/Qwen3-0.6B-4bit"), qwen);
  EXPECT_EQ(resolve("qwen3-0.6b"), qwen);
  EXPECT_EQ(resolve("4B-4bit"), large);
  EXPECT_EQ(resolve("gpt2"), llama);
  expect_bad(ErrorCode::kInvalidArgument, "qwen3",
             "\"qwen3\" could be any of these models: mlx-community/Qwen3-0.6B-4bit, "
             "mlx-community/Qwen3-4B-4bit; give more of the name");
  expect_bad(ErrorCode::kNotFound, "gtp2", "no model named \"gtp2\"; did you mean gpt2?");
  expect_bad(ErrorCode::kNotFound, "nothing/like-it", "there are: gpt2, mlx-community/Qwen3-0.6B");
}

TEST_F(ResolveTest, AnExactNameWinsOverLongerOnes) {
  const fs::path exact = add_checkpoint("org--model");
  add_checkpoint("org--model-large");
  EXPECT_EQ(resolve("org/model"), exact);
  EXPECT_EQ(resolve("ORG/Model"), exact);
}

TEST_F(ResolveTest, GgufRepositories) {
  const fs::path q4 = add("org--m-GGUF", "r", "m-Q4_K_M.gguf");
  EXPECT_EQ(resolve("org/m-GGUF"), q4);
  const fs::path q8 = add("org--m-GGUF", "r", "m-Q8_0.gguf");
  add("org--m-GGUF", "r", "mmproj-F16.gguf");
  EXPECT_EQ(resolve("org/m-GGUF:q8_0"), q8);
  EXPECT_EQ(resolve("m-gguf:m-Q4_K_M"), q4);
  expect_bad(ErrorCode::kInvalidArgument, "org/m-GGUF",
             "\"org/m-GGUF\" has several files; choose one of: org/m-GGUF:m-Q4_K_M, "
             "org/m-GGUF:m-Q8_0");
  expect_bad(ErrorCode::kNotFound, "org/m-GGUF:Q6", "has no .gguf file with \"Q6\" in its name");
  expect_bad(ErrorCode::kNotFound, "org/other:Q6", "no model named \"org/other:Q6\"");
  const fs::path both = add_checkpoint("org--m-GGUF", "r");
  EXPECT_EQ(resolve("org/m-GGUF"), both);
}

TEST_F(ResolveTest, SplitFilesAreOneModel) {
  const fs::path first = add("org--big-GGUF", "r", "big-Q4_K_M-00001-of-00002.gguf", "1234");
  const fs::path second = add("org--big-GGUF", "r", "big-Q4_K_M-00002-of-00002.gguf", "12");
  EXPECT_EQ(resolve("org/big-GGUF"), first);
  EXPECT_EQ(resolve(first.parent_path()), first);
  EXPECT_EQ(resolve(second), second);
  EXPECT_EQ(list_models(places_).front().bytes, 6u);
  add("org--big-GGUF", "r", "big-Q8_0-00001-of-00003.gguf");
  EXPECT_EQ(resolve("org/big-GGUF:Q4_K_M"), first);
  EXPECT_EQ(resolve("org/big-GGUF:big-q4_k_m"), first);
  root_.write("models/own-00002-of-00002.gguf", std::string_view("1"));
  EXPECT_EQ(resolve("own"), places_.own / "own-00002-of-00002.gguf");  // opening names the missing
}

TEST_F(ResolveTest, OnlyWholeModelsOfTheCacheAreListed) {
  add("org--big-GGUF", "r", "big-Q4_K_M-00001-of-00002.gguf");
  add("org--shards", "r", "config.json", "{}");
  add("org--shards", "r", "model-00002-of-00002.safetensors");
  EXPECT_TRUE(list_models(places_).empty());
  add("org--big-GGUF", "r", "big-Q4_K_M-00002-of-00002.gguf");
  add("org--shards", "r", "model-00001-of-00002.safetensors");
  EXPECT_EQ(list_models(places_).size(), 2u);
  root_.write("models/own/config.json", std::string_view("{}"));
  root_.write("models/own/model-00001-of-00002.safetensors", std::string_view("x"));
  EXPECT_EQ(list_models(places_).size(), 2u);
}

TEST_F(ResolveTest, QuantizationsInDirectoriesOfTheirOwn) {
  const fs::path q4 = add("org--m-GGUF", "r", "Q4_K_M/m-Q4_K_M-00001-of-00002.gguf");
  add("org--m-GGUF", "r", "Q4_K_M/m-Q4_K_M-00002-of-00002.gguf");
  EXPECT_EQ(resolve("org/m-GGUF"), q4);
  const fs::path q8 = add("org--m-GGUF", "r", "m-Q8_0.gguf");
  EXPECT_EQ(resolve("org/m-GGUF:Q8_0"), q8);
  EXPECT_EQ(resolve("org/m-GGUF:Q4_K_M"), q4);
}

TEST_F(ResolveTest, Revisions) {
  const fs::path older = add_checkpoint("org--m", "r1");
  const fs::path newer = add_checkpoint("org--m", "r2");
  fs::last_write_time(older, fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(resolve("org/m"), newer);
  root_.write("hub/models--org--m/refs/main", std::string_view("r1\n"));
  EXPECT_EQ(resolve("org/m"), older);
  root_.write("hub/models--org--m/refs/main", std::string_view("../../../elsewhere"));
  EXPECT_EQ(resolve("org/m"), newer);
}

TEST_F(ResolveTest, IncompleteSnapshotsAndDraftersAreLeftOut) {
  add("org--only-config", "r", "config.json", "{}");
  add("org--drafter", "r", "config.json", R"({"model_type":"gemma4_assistant"})");
  add("org--drafter", "r", "model.safetensors");
  const fs::path dangling = add_checkpoint("org--dangling");
  fs::remove(fs::read_symlink(dangling / "model.safetensors"));
  EXPECT_TRUE(list_models(places_).empty());
  expect_bad(ErrorCode::kNotFound, "drafter",
             "no model named \"drafter\", and none on this machine");
}

TEST_F(ResolveTest, ListsWhatResolves) {
  add("org--m-GGUF", "r", "m-Q4_K_M.gguf", "1234");
  add("org--m-GGUF", "r", "m-Q8_0.gguf", "12345678");
  add_checkpoint("org--dir");
  root_.write("models/own.Q4_0.gguf", std::string_view("12"));
  root_.write("models/own-dir/config.json", std::string_view("{}"));
  root_.write("models/own-dir/model.safetensors", std::string_view("123"));
  const std::vector<ModelEntry> entries = list_models(places_);
  std::vector<std::string> names;
  for (const ModelEntry& entry : entries) {
    names.push_back(entry.name);
    EXPECT_EQ(resolve(entry.name), entry.path);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"org/dir", "org/m-GGUF:m-Q4_K_M", "org/m-GGUF:m-Q8_0",
                                             "own-dir", "own.Q4_0"}));
  EXPECT_EQ(entries[0].format, Format::kDirectory);
  EXPECT_EQ(entries[2].format, Format::kGguf);
  EXPECT_EQ(entries[2].bytes, 8u);
  EXPECT_EQ(entries[3].bytes, 3u);
}

// Sets (or, with a null value, unsets) environment variables until it is destroyed.
class Environment {
 public:
  using Values = std::vector<std::pair<const char*, const char*>>;
  explicit Environment(const Values& values) {
    for (const auto& [name, value] : values) {
      const char* old = std::getenv(name);
      saved_.emplace_back(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
      set(name, value);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : saved_) set(name, value ? value->c_str() : nullptr);
  }

 private:
  static void set(const char* name, const char* value) {
    if (value == nullptr)
      ::unsetenv(name);
    else
      ::setenv(name, value, 1);
  }
  std::vector<std::pair<const char*, std::optional<std::string>>> saved_;
};

TEST(ModelPlaces, ComeFromTheEnvironment) {
  const auto hf_cache = [](const char* hub, const char* home, const char* xdg) {
    const Environment environment(
        {{"HF_HUB_CACHE", hub}, {"HF_HOME", home}, {"XDG_CACHE_HOME", xdg}, {"HOME", "/home/u"}});
    return ModelPlaces::from_environment().hf_cache;
  };
  EXPECT_EQ(hf_cache("/a", "/b", "/c"), "/a");
  EXPECT_EQ(hf_cache(nullptr, "/b", "/c"), "/b/hub");
  EXPECT_EQ(hf_cache(nullptr, nullptr, "/c"), "/c/huggingface/hub");
  EXPECT_EQ(hf_cache(nullptr, nullptr, nullptr), "/home/u/.cache/huggingface/hub");
  const Environment environment(Environment::Values{{"MANTOU_CACHE", "/m"}});
  EXPECT_EQ(ModelPlaces::from_environment().own, "/m/models");
}

TEST(HfRepoId, FromDirectoryNames) {
  EXPECT_EQ(hf_repo_id("models--org--name"), "org/name");
  EXPECT_EQ(hf_repo_id("models--org--na--me"), "org/na--me");
  EXPECT_EQ(hf_repo_id("models--gpt2"), "gpt2");
  EXPECT_EQ(hf_repo_id("datasets--x"), "");
}

}  // namespace
}  // namespace mantou::hub
