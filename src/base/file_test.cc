#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace mantou {
namespace {

class FileTest : public testing::Test {
 protected:
  FileTest()
      : path_(std::filesystem::temp_directory_path() / ("file_test_" + std::to_string(getpid()))) {}
  ~FileTest() override { std::filesystem::remove(path_); }

  const std::filesystem::path path_;
};

TEST_F(FileTest, RegularFilesAreReadAndMapped) {
  std::ofstream(path_) << "abc";
  EXPECT_EQ(read_file(path_, 3), "abc");
  EXPECT_EQ(MappedFile::open(path_)->bytes().size(), 3u);
  EXPECT_THROW(read_file(path_, 2), Error);
}

TEST_F(FileTest, ANamedPipeIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THROW(read_file(path_, 100), Error);
  EXPECT_THROW(MappedFile::open(path_), Error);
}

}  // namespace
}  // namespace mantou
