// What the hub answers, in the forms its documentation and its servers show, and broken.
#include "hub/download/answers.h"

#include <gtest/gtest.h>

#include "hub/download/choice.h"
#include "hub/expect_error.h"

namespace mantou::hub {
namespace {

using testing::expect_error;

const std::string kCommit(40, 'a'), kSha1(40, '1'), kSha256(64, '2');

TEST(Listing, SizesAndHashesOfPlainAndLargeFiles) {
  const RepoListing listing = parse_listing("org/m", R"({"sha": ")" + kCommit + R"(", "siblings": [
      {"rfilename": "config.json", "blobId": ")" + kSha1 +
                                                         R"(", "size": 12},
      {"rfilename": "a/b.gguf", "blobId": ")" + kSha1 + R"(", "size": 135,
       "lfs": {"sha256": ")" + kSha256 + R"(", "size": 99, "pointerSize": 135}},
      {"rfilename": "bare"}, {"rfilename": "../out"}, {"rfilename": "/etc/x"}, {"other": 1}, 7]})");
  EXPECT_EQ(listing.commit, kCommit);
  ASSERT_EQ(listing.files.size(), 3u);
  EXPECT_EQ(listing.files[0].size, 12u);
  EXPECT_EQ(listing.files[0].hash, kSha1);
  EXPECT_EQ(listing.files[1].path, "a/b.gguf");
  EXPECT_EQ(listing.files[1].size, 99u);
  EXPECT_EQ(listing.files[1].hash, kSha256);
  EXPECT_FALSE(listing.files[2].size);
  EXPECT_EQ(listing.files[2].hash, "");
}

TEST(Listing, OtherAnswersAreErrors) {
  for (const char* text : {"", "[]", "{}", "<html>", R"({"sha": "x", "siblings": []})",
                           R"({"sha": "cccccccccccccccccccccccccccccccccccccccc"})"})
    EXPECT_THROW(parse_listing("org/m", text), Error) << text;
}

HttpAnswer answer_with(int status, std::map<std::string, std::string> headers) {
  HttpAnswer answer;
  answer.status = status;
  answer.headers = std::move(headers);
  return answer;
}

TEST(DescribedFile, PrefersTheLinkedFile) {
  const HttpAnswer answer = answer_with(302, {{"etag", "\"" + kSha1 + "\""},
                                              {"content-length", "1234"},
                                              {"x-linked-etag", "\"" + kSha256 + "\""},
                                              {"x-linked-size", "77"},
                                              {"x-repo-commit", kCommit}});
  const RepoFile file = described_file("org/m", kCommit, {"f", {}, {}}, answer);
  EXPECT_EQ(file.hash, kSha256);
  EXPECT_EQ(file.size, 77u);
}

TEST(DescribedFile, PlainFilesAndWeakTags) {
  const HttpAnswer answer =
      answer_with(200, {{"etag", "W/\"" + kSha1 + "\""}, {"content-length", "5"}});
  const RepoFile file = described_file("org/m", kCommit, {"f", {}, {}}, answer);
  EXPECT_EQ(file.hash, kSha1);
  EXPECT_EQ(file.size, 5u);
}

TEST(DescribedFile, RefusesWhatDoesNotFit) {
  const auto bad = [](const std::string& text, const RepoFile& file, int status,
                      std::map<std::string, std::string> headers) {
    expect_error(ErrorCode::kCorruptData, text, [&] {
      described_file("org/m", kCommit, file, answer_with(status, std::move(headers)));
    });
  };
  const std::string tag = "\"" + kSha1 + "\"";
  bad("org/m/f: the hub gives no checksum", {"f", {}, {}}, 200, {{"content-length", "5"}});
  bad("does not say how long", {"f", {}, {}}, 200, {{"etag", tag}});
  bad("does not say how long", {"f", {}, {}}, 302, {{"etag", tag}, {"content-length", "5"}});
  bad("differ in their checksum", {"f", {}, kSha256}, 200,
      {{"etag", tag}, {"content-length", "5"}});
  bad("lists 6 bytes and offers 5", {"f", 6, {}}, 200, {{"etag", tag}, {"content-length", "5"}});
  bad("instead of " + kCommit, {"f", {}, {}}, 200,
      {{"etag", tag}, {"content-length", "5"}, {"x-repo-commit", "main"}});
}

TEST(Ranges, AsInRfc9110) {
  EXPECT_EQ(parse_content_range("bytes 5-9/10")->first, 5u);
  EXPECT_EQ(parse_content_range("bytes 5-9/10")->total, 10u);
  EXPECT_FALSE(parse_content_range("bytes 0-0/*")->total);
  for (const char* text : {"", "bytes */10", "bytes 9-5/10", "bytes 5-10/10", "items 5-9/10",
                           "bytes 5-9", "bytes 5/9-10", "bytes -5-9/10", "bytes 5-9/1x"})
    EXPECT_FALSE(parse_content_range(text)) << text;
}

TEST(RetryAfter, SecondsAndDates) {
  using std::chrono::seconds;
  const auto now = std::chrono::system_clock::from_time_t(784111777);  // the date of RFC 9110
  EXPECT_EQ(parse_retry_after("120", now), seconds(120));
  EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:50:37 GMT", now), seconds(60));
  EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:00:00 GMT", now), seconds(0));
  EXPECT_EQ(parse_retry_after("Sun, 06 Nov 3988 08:50:37 GMT", now), seconds(1'000'000));
  for (const char* text : {"", "-1", "soon", "1.5", "Sun, 06 Nov 1994"})
    EXPECT_FALSE(parse_retry_after(text, now)) << text;
}

TEST(Names, OfRepositories) {
  for (const char* text : {"gpt2", "org/name", "Org-1/Name_2.5-x"}) EXPECT_TRUE(is_repo_id(text));
  for (const char* text : {"", "/", "org/", "/n", "a/b/c", "../x", "a/..", "a/b c", "a--b/c",
                           "-a/b", "a/b.", "a/b\n", "a:b"})
    EXPECT_FALSE(is_repo_id(text)) << text;
}

TEST(Names, OfFiles) {
  for (const char* text : {"a", "a/b.gguf", "..a/b..", "ä"}) EXPECT_TRUE(is_safe_path(text));
  for (const char* text : {"", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a\nb"})
    EXPECT_FALSE(is_safe_path(text)) << text;
}

TEST(Wish, RepositoryAndPart) {
  EXPECT_EQ(parse_wish("org/m")->repo, "org/m");
  EXPECT_EQ(parse_wish("org/m:Q4_K_M")->part, "Q4_K_M");
  EXPECT_EQ(parse_wish("https://huggingface.co/org/m")->repo, "org/m");
  for (const char* text : {"", "org/m:", ":x", "./m.gguf", "a b", "org/m:../x"})
    EXPECT_FALSE(parse_wish(text)) << text;
}

// ---- Which files are chosen.

std::vector<std::string> chosen(const std::vector<std::string>& paths, const std::string& part) {
  RepoListing listing{"org/m", kCommit, {}};
  for (const std::string& path : paths) listing.files.push_back({path, {}, {}});
  std::vector<std::string> out;
  for (const RepoFile& file : choose_files(listing, part)) out.push_back(file.path);
  return out;
}
using Paths = std::vector<std::string>;

TEST(Choice, QuantizationsByName) {
  const Paths paths = {"README.md",      "m-Q4_K_M.gguf", "m-Q4_K_S.gguf",   "m-IQ4_XS.gguf",
                       "m-Q8_0.gguf",    "m-BF16.gguf",   "mmproj-F16.gguf", "imatrix.gguf",
                       "m-UD-Q2_K.gguf", "m-Q2_K_L.gguf"};
  EXPECT_EQ(chosen(paths, ""), Paths{"m-Q4_K_M.gguf"});
  EXPECT_EQ(chosen(paths, "q8_0"), Paths{"m-Q8_0.gguf"});
  EXPECT_EQ(chosen(paths, "Q2_K"), Paths{"m-UD-Q2_K.gguf"});
  EXPECT_EQ(chosen(paths, "iq4"), Paths{"m-IQ4_XS.gguf"});
  EXPECT_EQ(chosen(paths, "mmproj-F16.gguf"), Paths{"mmproj-F16.gguf"});
  expect_error(ErrorCode::kNotFound, "org/m has no file or quantization \"Q7\"; there are: m-BF16",
               [&] { chosen(paths, "Q7"); });
  expect_error(ErrorCode::kInvalidArgument, "\"Q4\" could be any of these",
               [&] { chosen(paths, "Q4"); });
}

TEST(Choice, DefaultIsTheNearestToQ4KM) {
  EXPECT_EQ(chosen({"m-Q8_0.gguf", "m-Q5_K_M.gguf", "m-F16.gguf"}, ""), Paths{"m-Q5_K_M.gguf"});
  EXPECT_EQ(chosen({"m.gguf"}, ""), Paths{"m.gguf"});
  expect_error(ErrorCode::kInvalidArgument, "choose: org/m:NAME of a-Q4_K_M, b-Q4_K_M",
               [] { chosen({"a-Q4_K_M.gguf", "b-Q4_K_M.gguf"}, ""); });
}

TEST(Choice, AllPartsOfASplitFile) {
  const Paths parts = {"Q4_K_M/m-Q4_K_M-00001-of-00002.gguf",
                       "Q4_K_M/m-Q4_K_M-00002-of-00002.gguf"};
  Paths paths = {parts[1], "m-Q8_0.gguf", parts[0]};
  EXPECT_EQ(chosen(paths, ""), parts);
  EXPECT_EQ(chosen(paths, parts[1]), parts);
  EXPECT_EQ(chosen(paths, "m-Q4_K_M-00001-of-00002.gguf"), parts);
  paths.pop_back();
  expect_error(ErrorCode::kCorruptData, "has 1 of its 2 parts", [&] { chosen(paths, "Q4_K_M"); });
}

TEST(Choice, DirectoriesAndNothingElse) {
  const Paths got = chosen(
      {"README.md", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
       "model.safetensors.index.json", "config.json", "tokenizer.json", "tokenizer_config.json",
       "generation_config.json", "chat_template.jinja", "additional_chat_templates/tool_use.jinja",
       "consolidated.safetensors", "original/model.safetensors", "pytorch_model.bin",
       "onnx/model.onnx", "preprocessor_config.json"},
      "");
  EXPECT_EQ(got, (Paths{"config.json", "model-00001-of-00002.safetensors",
                        "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                        "tokenizer.json", "tokenizer_config.json", "generation_config.json",
                        "chat_template.jinja", "additional_chat_templates/tool_use.jinja"}));
  expect_error(ErrorCode::kUnsupported, "holds no model that mantou reads",
               [] { chosen({"pytorch_model.bin", "config.json"}, ""); });
}

}  // namespace
}  // namespace mantou::hub
