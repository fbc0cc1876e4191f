#include "cli/fetch_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace mantou::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Progress, SecondsAsPeopleReadThem) {
  EXPECT_EQ(human_seconds(0), "0:00");
  EXPECT_EQ(human_seconds(7.4), "0:07");
  EXPECT_EQ(human_seconds(750), "12:30");
  EXPECT_EQ(human_seconds(3900), "1:05:00");
}

TEST(Progress, BytesShareRateAndTimeLeft) {
  hub::FetchProgress progress{"m.gguf", 1, 1, 3 << 20, 10 << 20};
  EXPECT_EQ(progress_text(progress, 0), "m.gguf  3.0 MiB of 10.0 MiB  30 %");
  EXPECT_EQ(progress_text(progress, 1 << 20),
            "m.gguf  3.0 MiB of 10.0 MiB  30 %  1.0 MiB/s  0:07 left");
  progress.count = 2;
  EXPECT_THAT(progress_text(progress, 0), HasSubstr("m.gguf (1 of 2)"));
  progress.done = progress.total - 1;
  EXPECT_THAT(progress_text(progress, 0), HasSubstr(" 99 %"));
  EXPECT_EQ(progress_text({"empty", 1, 1, 0, 0}, 0), "empty  0 B of 0 B  100 %");
}

std::string printed(bool terminal) {
  char* data = nullptr;
  size_t size = 0;
  std::FILE* file = ::open_memstream(&data, &size);
  {
    ProgressLine line(file, terminal);
    for (uint64_t done = 0; done <= 1000; ++done) line.update({"a.gguf", 1, 2, done, 2000});
    line.note("hello");
    for (uint64_t done = 1000; done <= 2000; ++done) line.update({"b.gguf", 2, 2, done, 2000});
  }
  std::fclose(file);
  const std::unique_ptr<char, void (*)(void*)> owned(data, std::free);
  return {data, size};
}

TEST(Progress, PlainLinesWhereThereIsNoTerminal) {
  const std::string text = printed(false);
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  EXPECT_THAT(text, HasSubstr("a.gguf (1 of 2)"));
  EXPECT_THAT(text, HasSubstr("b.gguf (2 of 2)  2.0 KiB of 2.0 KiB  100 %"));
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 5);
}

TEST(Progress, OneMovingLineOnATerminal) {
  const std::string text = printed(true);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);  // of the note
  EXPECT_THAT(text, HasSubstr("\r\033[Ka.gguf"));
  EXPECT_THAT(text, HasSubstr("\r\033[Khello\n"));
  EXPECT_TRUE(text.ends_with("\r\033[K"));
}

}  // namespace
}  // namespace mantou::cli
