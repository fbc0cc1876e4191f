// Models in several GGUF files: any part opens the whole, and whatever does not fit is named.
#include "hub/gguf_split.h"

#include <gtest/gtest.h>

#include "hub/artifact_base.h"
#include "hub/expect_error.h"
#include "hub/test_files.h"

namespace mantou::hub {
namespace {

using testing::expect_error;
using testing::GgufWriter;
using testing::TempDirectory;

constexpr uint16_t kParts = 3;

class GgufSplitTest : public ::testing::Test {
 protected:
  // Part `number` of three with one tensor "t<number>" of `number` floats.
  static GgufWriter part(int number) {
    GgufWriter writer;
    writer.number("split.no", GgufType::kU16, uint16_t(number - 1));
    writer.number("split.count", GgufType::kU16, kParts);
    writer.number("split.tensors.count", GgufType::kI32, int32_t{3});
    if (number == 1) writer.text("general.name", "whole");
    writer.floats(fmt::format("t{}", number), {uint64_t(number)}, float(number));
    return writer;
  }
  std::filesystem::path write(int number, const GgufWriter& writer) {
    return directory_.write(fmt::format("m.Q4-{:05}-of-00003.gguf", number),
                            std::string_view(writer.bytes()));
  }
  std::filesystem::path write_all() {
    for (int number : {3, 2}) write(number, part(number));
    return write(1, part(1));
  }
  void expect_bad(ErrorCode code, const std::string& text) {
    expect_error(code, text, [&] { GgufFile::open(first_); });
  }

  TempDirectory directory_;
  std::filesystem::path first_ = write_all();
};

TEST_F(GgufSplitTest, AnyPartOpensTheWhole) {
  for (int number : {1, 2, 3}) {
    const auto file = GgufFile::open(gguf_sibling(first_, *gguf_part(first_), number));
    EXPECT_EQ(file->origin(), first_.string());
    EXPECT_EQ(file->get_string("general.name"), "whole");
    ASSERT_EQ(file->tensors().size(), 3u);
    for (int i = 0; i < 3; ++i) {
      const RawTensor& tensor = file->tensors()[size_t(i)];
      EXPECT_EQ(tensor.name, fmt::format("t{}", i + 1));
      float last;
      std::memcpy(&last, tensor.bytes.data() + tensor.bytes.size() - 4, 4);
      EXPECT_EQ(last, float(2 * i + 1));
    }
  }
  EXPECT_EQ(model_name(first_), "m.Q4");
}

TEST_F(GgufSplitTest, MissingPartsAreNamed) {
  std::filesystem::remove(gguf_sibling(first_, *gguf_part(first_), 2));
  expect_bad(ErrorCode::kNotFound,
             "1 of the model's 3 parts are missing beside it: m.Q4-00002-of-00003.gguf");
  std::filesystem::remove(gguf_sibling(first_, *gguf_part(first_), 3));
  expect_bad(ErrorCode::kNotFound,
             "2 of the model's 3 parts are missing beside it: "
             "m.Q4-00002-of-00003.gguf, m.Q4-00003-of-00003.gguf");
}

TEST_F(GgufSplitTest, PartsThatDoNotFitAreNamed) {
  GgufWriter other = part(3);
  write(2, other);
  expect_bad(ErrorCode::kCorruptData,
             "m.Q4-00002-of-00003.gguf: the file does not say that it is part 2 of 3");
  other = part(2);
  other.tensors[0].name = "t1";
  write(2, other);
  expect_bad(ErrorCode::kCorruptData,
             "m.Q4-00002-of-00003.gguf: tensor \"t1\" is also in a part before it");
  other = part(2);
  other.text("general.name", "another");
  write(2, other);
  expect_bad(ErrorCode::kCorruptData,
             "m.Q4-00002-of-00003.gguf: general.name is another than in the parts before it");
  other = part(2);
  other.tensors.clear();
  write(2, other);
  expect_bad(ErrorCode::kCorruptData, "the 3 parts hold 2 tensors, split.tensors.count says 3");
  directory_.write("m.Q4-00002-of-00003.gguf", std::string_view("GGUF"));
  expect_bad(ErrorCode::kCorruptData, "m.Q4-00002-of-00003.gguf: not a GGUF file");
}

TEST_F(GgufSplitTest, NamesMustSayThePart) {
  const auto renamed = directory_.write("m.gguf", std::string_view(part(2).bytes()));
  expect_error(ErrorCode::kInvalidArgument,
               "this is part 2 of 3; to find the others, its name must end in -00002-of-00003.gguf",
               [&] { GgufFile::open(renamed); });
  write(1, part(2));
  expect_bad(ErrorCode::kInvalidArgument, "this is part 2 of 3");
  GgufWriter lying;
  lying.number("split.no", GgufType::kU16, kParts).number("split.count", GgufType::kU16, kParts);
  write(1, lying);
  expect_bad(ErrorCode::kCorruptData, "split.no 3 and split.count 3 name no part");
  GgufWriter many;
  many.number("split.no", GgufType::kU16, uint16_t{0});
  many.number("split.count", GgufType::kU16, uint16_t{60000});
  write(1, many);
  expect_bad(ErrorCode::kCorruptData, "split.no 0 and split.count 60000 name no part");
}

TEST_F(GgufSplitTest, OnePartIsAWholeFile) {
  GgufWriter one;
  one.number("split.count", GgufType::kU16, uint16_t{1}).floats("a", {2});
  const auto path = directory_.write("one.gguf", std::string_view(one.bytes()));
  EXPECT_EQ(GgufFile::open(path)->tensors().size(), 1u);
}

TEST(GgufPartNames, AreReadFromTheEnd) {
  const auto part = gguf_part("d/a-00001-of-00002-00003-of-00014.gguf");
  ASSERT_TRUE(part);
  EXPECT_EQ(part->model, "a-00001-of-00002");
  EXPECT_EQ(part->number, 3);
  EXPECT_EQ(part->count, 14);
  EXPECT_EQ(gguf_sibling("d/x.gguf", *part, 14), "d/a-00001-of-00002-00014-of-00014.gguf");
  EXPECT_EQ(gguf_stem("d/a-00003-of-00014.gguf"), "a");
  for (const char* name :
       {"a.gguf", "-00001-of-00002.gguf", "a-00001-of-00002.bin", "a-0001-of-00002.gguf",
        "a-00000-of-00002.gguf", "a-00003-of-00002.gguf", "a-+0001-of-00002.gguf",
        "a_00001-of-00002.gguf", "a-00001-of_00002.gguf", "a-00001-of-10000.gguf"})
    EXPECT_FALSE(gguf_part(name)) << name;
  EXPECT_EQ(gguf_stem("d/a.Q4.gguf"), "a.Q4");
}

}  // namespace
}  // namespace mantou::hub
