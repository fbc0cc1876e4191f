#include "base/available_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace mantou {
namespace {

class CgroupMemory : public ::testing::Test {
 protected:
  CgroupMemory() {
    root_ =
        std::filesystem::path(testing::TempDir()) / ("memory_test_" + std::to_string(::getpid()));
  }
  ~CgroupMemory() override { std::filesystem::remove_all(root_); }
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  uint64_t left(const std::string& self) { return cgroup_memory_left(root_.string(), self); }
  std::filesystem::path root_;
};

TEST(Meminfo, AvailableInBytes) {
  EXPECT_EQ(meminfo_available("MemTotal:  100 kB\nMemAvailable:    12 kB\n"), 12288u);
  EXPECT_EQ(meminfo_available(""), 0u);
}

TEST_F(CgroupMemory, TheTightestOfTheGroupAndItsParents) {
  EXPECT_EQ(left("0::/a/b\n"), UINT64_MAX);
  write("a/b/memory.max", "max\n");
  write("a/b/memory.current", "10\n");
  EXPECT_EQ(left("0::/a/b\n"), UINT64_MAX);
  write("a/memory.max", "1000\n");
  write("a/memory.current", "400\n");
  EXPECT_EQ(left("0::/a/b\n"), 600u);
  write("a/memory.stat", "anon 100\ninactive_file 300\nactive_file 0\n");
  EXPECT_EQ(left("0::/a/b\n"), 900u);
  write("a/memory.current", "2000\n");
  EXPECT_EQ(left("0::/a/b\n"), 0u);
}

TEST_F(CgroupMemory, VersionOne) {
  write("memory/x/memory.limit_in_bytes", "500\n");
  write("memory/x/memory.usage_in_bytes", "100\n");
  EXPECT_EQ(left("3:cpu:/x\n4:memory:/x\n"), 400u);
  EXPECT_EQ(left("3:cpu:/x\n"), UINT64_MAX);
}

TEST(AvailableMemory, IsSomething) { EXPECT_GT(available_memory(), 0u); }

}  // namespace
}  // namespace mantou
