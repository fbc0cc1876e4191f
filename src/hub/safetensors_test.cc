// The safetensors reader against files written from the format's description, truthful and not.
#include "hub/safetensors.h"

#include <gtest/gtest.h>

#include "hub/expect_error.h"
#include "hub/test_files.h"

namespace mantou::hub {
namespace {

using nlohmann::json;
using testing::expect_error;
using testing::safetensors_bytes;
using testing::SafetensorsWriter;
using testing::TempDirectory;

std::vector<RawTensor> parse(const std::string& bytes) {
  const auto copy = std::make_shared<const std::string>(bytes);
  return parse_safetensors(testing::bytes_of(*copy), "m.safetensors", copy);
}

void expect_corrupt(const std::string& header, const std::string& text, size_t data_bytes = 16) {
  const std::string bytes = safetensors_bytes(header, std::string(data_bytes, 'x'));
  expect_error(ErrorCode::kCorruptData, text, [&] { parse(bytes); });
}

std::vector<std::string> names_of(const std::vector<RawTensor>& tensors) {
  std::vector<std::string> names;
  for (const RawTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirData) {
  SafetensorsWriter writer;
  writer.floats("z", {2, 3}, 10).add<uint16_t>("a", "BF16", {2}, {0x3fc0, 0x4000});
  writer.add<uint32_t>("m", "U32", {1}, {7}).add<uint8_t>("s", "U8", {}, {9});
  const std::vector<RawTensor> tensors = parse(writer.bytes());
  EXPECT_EQ(names_of(tensors), (std::vector<std::string>{"z", "a", "m", "s"}));
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{2, 3}));
  float value;
  std::memcpy(&value, tensors[0].bytes.data() + 20, sizeof(value));
  EXPECT_EQ(value, 15.0f);
  EXPECT_EQ(tensors[1].dtype, DType::kBF16);
  EXPECT_EQ(tensors[3].elements(), 1);
}

TEST(Safetensors, ToleratesMetadataPaddingAndGaps) {
  const std::string header =
      R"({"__metadata__":{"format":"mlx"},"a":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}   )";
  const auto tensors = parse(safetensors_bytes(header, std::string(16, 'x')));
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors[0].bytes.size(), 4u);
  EXPECT_TRUE(parse(safetensors_bytes("{}", "")).empty());
}

TEST(Safetensors, RefusesBadHeaders) {
  expect_error(ErrorCode::kCorruptData, "too short", [] { parse("1234567"); });
  expect_error(ErrorCode::kCorruptData, "a header of 18446744073709551615 bytes",
               [] { parse(std::string(16, '\xff')); });
  expect_error(ErrorCode::kCorruptData, "ends inside its header",
               [] { parse(safetensors_bytes("{}", "").substr(0, 9)); });
  expect_corrupt("[]", "no JSON object");
  expect_corrupt("", "no JSON object");
  expect_corrupt(R"({"a": )", "not valid JSON");
  expect_corrupt(
      "{\"a\":\""
      "\xff"
      "\"}",
      "not valid JSON");
  std::string deep = R"({"a":)";
  for (int i = 0; i < 100000; ++i) deep += '[';
  expect_corrupt(deep, "nested more than 8 deep");
  expect_corrupt(R"({"a":1})", "\"a\" is no JSON object");
  const std::string one = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  expect_corrupt(R"({"a":)" + one + R"(,"a":)" + one + "}", "\"a\" appears twice");
}

TEST(Safetensors, RefusesBadTensors) {
  const auto header = [](const char* dtype, const char* shape, const char* offsets) {
    return fmt::format(R"({{"t":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape,
                       offsets);
  };
  expect_corrupt(header("1", "[1]", "[0, 4]"), "\"t\" has no dtype");
  expect_corrupt(header(R"("F32")", R"("x")", "[0, 4]"), "no usable shape");
  expect_corrupt(header(R"("F32")", "[-1]", "[0, 4]"), "no usable shape");
  expect_corrupt(header(R"("F32")", "[1.5]", "[0, 4]"), "no usable shape");
  expect_corrupt(header(R"("F32")", "[1, 1, 1, 1, 1, 1, 1, 1, 1]", "[0, 4]"), "no usable shape");
  expect_corrupt(header(R"("F32")", "[0]", "[0, 0]"), "impossible extent of 0");
  expect_corrupt(header(R"("F32")", "[8589934592, 8589934592]", "[0, 4]"), "impossible extent");
  expect_corrupt(header(R"("F32")", "[5]", "[0, 16]"), "impossible extent of 5");
  expect_corrupt(header(R"("F32")", "[1]", "[0]"), "outside");
  expect_corrupt(header(R"("F32")", "[1]", "[4, 0]"), "outside");
  expect_corrupt(header(R"("F32")", "[1]", "[16, 20]"), "outside the 16 bytes");
  expect_corrupt(header(R"("F32")", "[1]", "[18446744073709551612, 18446744073709551615]"),
                 "outside");
  expect_corrupt(header(R"("F32")", "[1]", "[0, 8]"), "has 8 bytes where its shape needs 4");
  expect_error(ErrorCode::kUnsupported, "\"t\" is of type F8_E4M3",
               [&] { parse(safetensors_bytes(header(R"("F8_E4M3")", "[1]", "[0, 1]"), "x")); });
}

TEST(Safetensors, RefusesOverlaps) {
  expect_corrupt(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                 R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                 "tensors \"a\" and \"b\" overlap");
  expect_corrupt(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                 R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                 "overlap");
}

TEST(Shards, WithoutAnIndexModelFilesWin) {
  const TempDirectory directory;
  directory.write("b.safetensors", std::string_view(SafetensorsWriter().floats("b", {1}).bytes()));
  directory.write("a.safetensors", std::string_view(SafetensorsWriter().floats("a", {1}).bytes()));
  EXPECT_EQ(names_of(open_shards(directory.path())), (std::vector<std::string>{"a", "b"}));
  directory.write("model.safetensors",
                  std::string_view(SafetensorsWriter().floats("m", {1}).bytes()));
  EXPECT_EQ(names_of(open_shards(directory.path())), (std::vector<std::string>{"m"}));
  const TempDirectory empty;
  expect_error(ErrorCode::kNotFound, "there are no *.safetensors files",
               [&] { open_shards(empty.path()); });
}

TEST(Shards, TheIndexNamesWhatIsMissing) {
  const TempDirectory directory;
  const std::string one = "model-00001-of-00002.safetensors",
                    two = "model-00002-of-00002.safetensors";
  const auto index = [&](const json& map) {
    directory.write("model.safetensors.index.json", json{{"weight_map", map}});
  };
  index({{"a", one}, {"b", two}});
  directory.write(one, std::string_view(SafetensorsWriter().floats("a", {1}).bytes()));
  expect_error(ErrorCode::kNotFound, two + ": the shard is missing",
               [&] { open_shards(directory.path()); });
  directory.write(two, std::string_view(SafetensorsWriter().floats("c", {1}).bytes()));
  expect_error(ErrorCode::kCorruptData, two + ": tensor \"b\" is missing",
               [&] { open_shards(directory.path()); });
  directory.write(two, std::string_view(SafetensorsWriter().floats("b", {1}).bytes()));
  EXPECT_EQ(names_of(open_shards(directory.path())), (std::vector<std::string>{"a", "b"}));
  for (const char* name : {"../x.safetensors", "/etc/passwd", "..", ""}) {
    index({{"a", name}});
    expect_error(ErrorCode::kCorruptData, "\"a\" names no file of the directory",
                 [&] { open_shards(directory.path()); });
  }
  directory.write("model.safetensors.index.json", json::array());
  expect_error(ErrorCode::kCorruptData, "there is no \"weight_map\"",
               [&] { open_shards(directory.path()); });
}

}  // namespace
}  // namespace mantou::hub
