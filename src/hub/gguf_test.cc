// GgufFile against files written field by field from the format's description: what it reads, and
// that every lie a header can tell is refused by name.
#include "hub/gguf.h"

#include <gtest/gtest.h>

#include "hub/expect_error.h"
#include "hub/test_files.h"

namespace mantou::hub {
namespace {

using testing::append;
using testing::expect_error;
using testing::GgufWriter;

std::shared_ptr<const GgufFile> parse(const std::string& bytes) {
  const auto copy = std::make_shared<const std::string>(bytes);
  return GgufFile::parse(testing::bytes_of(*copy), "m.gguf", copy);
}
std::shared_ptr<const GgufFile> parse(const GgufWriter& writer) { return parse(writer.bytes()); }

void expect_corrupt(const GgufWriter& writer, const std::string& text) {
  expect_error(ErrorCode::kCorruptData, text, [&] { parse(writer); });
}
void expect_unsupported(const GgufWriter& writer, const std::string& text) {
  expect_error(ErrorCode::kUnsupported, text, [&] { parse(writer); });
}

GgufWriter two_tensors() {
  GgufWriter writer;
  writer.floats("a", {3, 2}).floats("b", {8}, 100);
  return writer;
}

TEST(Gguf, ReadsEveryKindOfValue) {
  GgufWriter writer;
  writer.number("u8", GgufType::kU8, uint8_t{200}).number("i8", GgufType::kI8, int8_t{-3});
  writer.number("u16", GgufType::kU16, uint16_t{60000}).number("i16", GgufType::kI16, int16_t{-5});
  writer.u32("u32", 4000000000u).number("i32", GgufType::kI32, int32_t{-7});
  writer.number("u64", GgufType::kU64, uint64_t{1} << 40);
  writer.number("i64", GgufType::kI64, -(int64_t{1} << 40));
  writer.f32("f32", 0.5f).number("f64", GgufType::kF64, 0.25).boolean("yes", true);
  writer.text("text", "häl\0lo").strings("texts", {"a", "", "ccc"});
  writer.array<int32_t>("ints", GgufType::kI32, {1, -2})
      .array<float>("floats", GgufType::kF32, {1.5f});
  const auto file = parse(writer);
  EXPECT_EQ(file->get_int("u8"), 200);
  EXPECT_EQ(file->get_int("i8"), -3);
  EXPECT_EQ(file->get_int("u16"), 60000);
  EXPECT_EQ(file->get_int("i16"), -5);
  EXPECT_EQ(file->get_int("u32"), 4000000000);
  EXPECT_EQ(file->get_int("i32"), -7);
  EXPECT_EQ(file->get_int("u64"), int64_t{1} << 40);
  EXPECT_EQ(file->get_int("i64"), -(int64_t{1} << 40));
  EXPECT_EQ(file->get_double("f32"), 0.5);
  EXPECT_EQ(file->get_double("f64"), 0.25);
  EXPECT_EQ(file->get_double("i32"), -7.0);
  EXPECT_EQ(file->get_bool("yes"), true);
  EXPECT_EQ(file->get_string("text"), "häl");
  EXPECT_EQ(file->get_strings("texts"), (std::vector<std::string>{"a", "", "ccc"}));
  EXPECT_EQ(file->get_ints("ints"), (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(file->get_ints("u8"), (std::vector<int64_t>{200}));
  EXPECT_EQ(file->get_floats("floats"), (std::vector<float>{1.5f}));
  EXPECT_EQ(file->get_int("absent"), std::nullopt);
  EXPECT_TRUE(file->get_strings("absent").empty());
}

TEST(Gguf, WrongKindsNameTheKey) {
  GgufWriter writer;
  writer.text("text", "x").number("big", GgufType::kU64, ~uint64_t{0}).f32("nan", NAN);
  writer.u32("number", 1).array<float>("floats", GgufType::kF32, {1});
  const auto file = parse(writer);
  const auto expect_wrong = [](const std::string& text, auto call) {
    expect_error(ErrorCode::kCorruptData, text, call);
  };
  expect_wrong("\"text\" is not an integer", [&] { file->get_int("text"); });
  expect_wrong("\"big\" is not an integer", [&] { file->get_int("big"); });
  expect_wrong("\"floats\" is not an integer", [&] { file->get_int("floats"); });
  expect_wrong("\"nan\" is not a finite number", [&] { file->get_double("nan"); });
  expect_wrong("\"number\" is not true or false", [&] { file->get_bool("number"); });
  expect_wrong("\"number\" is not a string", [&] { file->get_string("number"); });
  expect_wrong("\"text\" is not an array of strings", [&] { file->get_strings("text"); });
  expect_wrong("\"floats\" is not an array of integers", [&] { file->get_ints("floats"); });
  expect_wrong("\"number\" is not an array of numbers", [&] { file->get_floats("number"); });
}

TEST(Gguf, ReadsTensors) {
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter writer = two_tensors();
    writer.version = version;
    // One block of each kind: type number, bytes; the numbers are ggml.h's.
    const std::vector<std::pair<uint32_t, size_t>> blocks = {{2, 18}, {3, 20},  {6, 22}, {7, 24},
                                                             {8, 34}, {20, 18}, {39, 17}};
    for (const auto& [type, bytes] : blocks)
      writer.tensors.push_back({fmt::format("t{}", type), {32}, type, std::string(bytes, 'x'), {}});
    for (const auto& [type, bytes] : std::vector<std::pair<uint32_t, size_t>>{
             {12, 144}, {13, 176}, {14, 210}, {10, 84}, {11, 110}, {23, 136}})
      writer.tensors.push_back(
          {fmt::format("t{}", type), {256}, type, std::string(bytes, 'x'), {}});
    writer.tensors.push_back({"t1", {2}, 1, std::string(4, 'x'), {}});
    writer.tensors.push_back({"t30", {2}, 30, std::string(4, 'x'), {}});
    const auto file = parse(writer);
    ASSERT_EQ(file->tensors().size(), 17u);
    const RawTensor& a = file->tensors()[0];
    EXPECT_EQ(a.name, "a");
    EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3}));  // outermost first
    float values[6];
    std::memcpy(values, a.bytes.data(), sizeof(values));
    EXPECT_EQ(values[5], 5.0f);
    EXPECT_EQ(file->tensors()[1].shape, (std::vector<int64_t>{8}));
    std::vector<DType> dtypes;
    for (const RawTensor& tensor : file->tensors()) dtypes.push_back(tensor.dtype);
    EXPECT_EQ(dtypes,
              (std::vector{DType::kF32, DType::kF32, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                           DType::kQ5_1, DType::kQ8_0, DType::kIQ4_NL, DType::kMXFP4, DType::kQ4_K,
                           DType::kQ5_K, DType::kQ6_K, DType::kQ2_K, DType::kQ3_K, DType::kIQ4_XS,
                           DType::kF16, DType::kBF16}));
    EXPECT_EQ(file->tensors()[11].bytes.size(), 210u);
  }
}

TEST(Gguf, MetadataKeepsItsBytesAlive) {
  GgufWriter writer;
  writer.text("k", "value");
  auto bytes = std::make_shared<const std::string>(writer.bytes());
  const std::weak_ptr<const std::string> watch = bytes;
  auto file = GgufFile::parse(testing::bytes_of(*bytes), "m.gguf", bytes);
  bytes.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(file->get_string("k"), "value");
  file.reset();
  EXPECT_TRUE(watch.expired());
}

TEST(Gguf, TensorsKeepTheirBytesAlive) {
  RawTensor tensor;
  {
    auto bytes = std::make_shared<const std::string>(two_tensors().bytes());
    std::weak_ptr<const std::string> watch = bytes;
    auto file = GgufFile::parse(testing::bytes_of(*bytes), "m.gguf", bytes);
    tensor = file->tensors()[1];
    file.reset();
    bytes.reset();
    EXPECT_FALSE(watch.expired());
  }
  float value;
  std::memcpy(&value, tensor.bytes.data(), sizeof(value));
  EXPECT_EQ(value, 100.0f);
}

TEST(Gguf, RefusesOtherVersions) {
  GgufWriter writer = two_tensors();
  writer.magic = "GGML";
  expect_corrupt(writer, "m.gguf: not a GGUF file");
  writer.magic = "GGUF";
  writer.version = 1;
  expect_unsupported(writer, "GGUF version 1");
  writer.version = 4;
  expect_unsupported(writer, "GGUF version 4");
  writer.version = 0x03000000;
  expect_unsupported(writer, "big-endian");
  expect_error(ErrorCode::kCorruptData, "not a GGUF file", [] { parse("GGU"); });
  expect_error(ErrorCode::kCorruptData, "not a GGUF file", [] { parse(""); });
}

// A file may be cut anywhere, and never be read beyond its end.
TEST(Gguf, RefusesEveryTruncation) {
  GgufWriter writer = two_tensors();
  writer.u32("number", 1).strings("texts", {"a", "bb"});
  const std::string whole = writer.bytes();
  EXPECT_EQ(parse(whole)->tensors().size(), 2u);
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(parse(whole.substr(0, size)), Error) << "cut to " << size << " bytes";
}

TEST(Gguf, RefusesImpossibleCounts) {
  for (const uint64_t count : {uint64_t{1} << 20, uint64_t{1} << 60, ~uint64_t{0}}) {
    GgufWriter writer = two_tensors();
    writer.tensor_count = count;
    expect_corrupt(writer, "cannot lie in a file");
    writer.tensor_count.reset();
    writer.value_count = count;
    expect_corrupt(writer, "cannot lie in a file");
  }
  for (const GgufType type : {GgufType::kU8, GgufType::kU64, GgufType::kString}) {
    GgufWriter writer;
    std::string payload;
    append(payload, uint32_t(type));
    append(payload, ~uint64_t{0} / 2);
    writer.raw("list", uint32_t(GgufType::kArray), payload + std::string(64, '\0'));
    expect_corrupt(writer, "the value of \"list\" has 9223372036854775807 elements");
  }
}

TEST(Gguf, RefusesBadMetadata) {
  GgufWriter unknown;
  unknown.raw("k", 13, "xxxxxxxx");
  expect_corrupt(unknown, "\"k\" has the unknown type 13");

  GgufWriter nested;
  std::string payload;
  append(payload, uint32_t(GgufType::kArray));
  append(payload, uint64_t{1});
  nested.raw("k", uint32_t(GgufType::kArray), payload + std::string(64, '\0'));
  expect_unsupported(nested, "\"k\" is an array of arrays");

  GgufWriter twice;
  twice.u32("k", 1).u32("k", 2);
  expect_corrupt(twice, "\"k\" appears twice");

  GgufWriter past_the_end;
  std::string length;
  append(length, uint64_t{1} << 40);
  past_the_end.raw("k", uint32_t(GgufType::kString), length);
  expect_corrupt(past_the_end, "the file ends inside the value of \"k\"");

  GgufWriter long_key;
  long_key.u32(std::string(70000, 'k'), 1);
  expect_corrupt(long_key, "a metadata key is 70000 bytes long");
}

TEST(Gguf, RefusesBadDimensions) {
  const auto with_dims = [](std::vector<uint64_t> dims, uint32_t type = 0) {
    GgufWriter writer;
    writer.tensors.push_back({"t", std::move(dims), type, std::string(64, 'x'), {}});
    return writer;
  };
  expect_corrupt(with_dims({}), "\"t\" has 0 dimensions");
  expect_corrupt(with_dims({1, 1, 1, 1, 1}), "\"t\" has 5 dimensions");
  expect_corrupt(with_dims({2, 0}), "impossible extent of 0");
  expect_corrupt(with_dims({uint64_t{1} << 63}), "impossible extent");
  expect_corrupt(with_dims({uint64_t{1} << 33, uint64_t{1} << 33}), "impossible extent");
  expect_corrupt(with_dims({uint64_t{1} << 62}), "larger than the file");
  expect_corrupt(with_dims({48}, 2), "rows of 48 elements are no whole number of Q4_0 blocks");
  expect_corrupt(with_dims({32, 8}, 12), "no whole number of Q4_K blocks");
}

TEST(Gguf, RefusesBadTensorTypes) {
  GgufWriter writer;
  writer.tensors.push_back({"blk.0.x", {256}, 16, std::string(66, 'x'), {}});
  expect_unsupported(writer,
                     "tensor \"blk.0.x\" is of type IQ2_XXS, which is not supported; these are: "
                     "F32, F16, Q4_0");
  writer.tensors[0].type = 40;
  expect_unsupported(writer, "of type NVFP4");
  writer.tensors[0].type = 31;
  expect_unsupported(writer, "of type Q4_0_4_4");
  writer.tensors[0].type = 1000;
  expect_unsupported(writer, "has the unknown type 1000");
}

TEST(Gguf, RefusesBadPlaces) {
  GgufWriter writer = two_tensors();
  writer.tensors[1].offset = 33;
  expect_corrupt(writer, "tensor \"b\" begins at 33, not a multiple of the alignment 32");
  writer.tensors[1].offset = 0;
  expect_corrupt(writer, "overlap");
  writer.tensors[1].offset = 64;  // the data ends there
  expect_corrupt(writer, "tensor \"b\" (32 bytes at 64) lies outside the 64 bytes");
  writer.tensors[1].offset = ~uint64_t{31};
  expect_corrupt(writer, "lies outside");
  writer.tensors[1] = writer.tensors[0];
  expect_corrupt(writer, "tensor \"a\" appears twice");
}

TEST(Gguf, ToleratesGapsAndHonoursTheAlignment) {
  GgufWriter writer = two_tensors();
  writer.alignment = 64;
  writer.u32("general.alignment", 64);
  EXPECT_EQ(parse(writer)->tensors()[1].bytes.size(), 32u);
  writer.tensors[1].offset = 128;
  writer.tensors[0].data.resize(128, '\0');
  EXPECT_EQ(parse(writer)->tensors()[1].bytes.size(), 32u);
  for (const uint32_t bad : {0u, 24u, 1u << 30}) {
    GgufWriter lying = two_tensors();
    lying.u32("general.alignment", bad);
    expect_corrupt(lying, "general.alignment is");
  }
}

TEST(Gguf, MessagesAreOneCleanLine) {
  GgufWriter writer = two_tensors();
  writer.tensors[0].name = "evil\n\x1b[31m\xff" + std::string(500, 'n');
  writer.tensors[0].dims = {0};
  try {
    parse(writer);
    FAIL();
  } catch (const Error& error) {
    for (const char c : error.message()) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
    EXPECT_LT(error.message().size(), 300u);
  }
}

TEST(Gguf, OpensFiles) {
  const testing::TempDirectory directory;
  const auto path = directory.write("m.gguf", std::string_view(two_tensors().bytes()));
  EXPECT_EQ(GgufFile::open(path)->tensors().size(), 2u);
  EXPECT_EQ(GgufFile::open(path)->origin(), path.string());
  expect_error(ErrorCode::kNotFound, "absent.gguf",
               [&] { GgufFile::open(directory.path() / "absent.gguf"); });
  const auto empty = directory.write("empty.gguf", std::string_view(""));
  expect_error(ErrorCode::kCorruptData, "not a GGUF file", [&] { GgufFile::open(empty); });
}

}  // namespace
}  // namespace mantou::hub
