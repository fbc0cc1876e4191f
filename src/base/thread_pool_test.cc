#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <string>

#include "base/cpu_count.h"
#include "base/error.h"

namespace mantou {
namespace {

TEST(ThreadPool, RunsEveryChunkOnce) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int chunks : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(chunks));
      pool.run(chunks, [&](int chunk, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, threads);
        ++runs[static_cast<size_t>(chunk)];
      });
      for (auto& count : runs) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPool, ManyShortRegionsSeeEachOthersWrites) {
  ThreadPool pool(3);
  std::vector<int> values(17, 0);  // plain memory: the regions order it
  for (int round = 0; round < 20000; ++round) {
    pool.run(17, [&](int chunk, int) { ++values[size_t(chunk)]; });
    values[0] += 1;
  }
  EXPECT_EQ(values[0], 40000);
  EXPECT_EQ(std::accumulate(values.begin() + 1, values.end(), 0), 16 * 20000);
}

TEST(ThreadPool, WakesSleepingWorkers) {
  ThreadPool pool(2);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // longer than a worker spins
    // The first chunk waits for the other, so that a worker must take one.
    std::atomic<int> arrived{0};
    pool.run(2, [&](int, int) {
      ++arrived;
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (arrived.load() < 2 && std::chrono::steady_clock::now() < deadline)
        std::this_thread::yield();
    });
    EXPECT_EQ(arrived.load(), 2);
  }
}

TEST(ThreadPool, WaitsForAChunkThatTakesLong) {
  ThreadPool pool(2);
  std::atomic<bool> worker_began{false}, worker_ended{false};
  pool.run(2, [&](int, int thread) {
    if (thread == 0) {  // leaves the other chunk to the worker
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (!worker_began.load() && std::chrono::steady_clock::now() < deadline)
        std::this_thread::yield();
    } else {  // outlasts the caller's spinning
      worker_began = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      worker_ended = true;
    }
  });
  EXPECT_TRUE(worker_ended.load());
}

TEST(ThreadPool, CarriesTheFirstExceptionAndGoesOn) {
  for (int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 100; ++round) {
      try {
        pool.run(50, [&](int chunk, int) {
          if (chunk % 10 == 3) throw std::runtime_error("chunk failed");
        });
        FAIL() << "no exception";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "chunk failed");
      }
      std::atomic<int> runs{0};
      pool.run(50, [&](int, int) { ++runs; });
      EXPECT_EQ(runs.load(), 50);
    }
  }
}

TEST(ThreadPool, NeedsAThread) { EXPECT_THROW(ThreadPool(0), Error); }

TEST(ThreadPool, DefaultCountFitsTheMachine) {
  EXPECT_GE(default_thread_count(), 1);
  EXPECT_LE(default_thread_count(), int(std::thread::hardware_concurrency()));
}

class CgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ =
        std::filesystem::path(testing::TempDir()) / ("cgroup_test_" + std::to_string(::getpid()));
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  int limit(const std::string& self) { return cgroup_cpu_limit(root_.string(), self); }

  std::filesystem::path root_;
};

TEST_F(CgroupTest, VersionTwoTakesTheLeastOfTheParents) {
  EXPECT_EQ(limit("0::/a/b\n"), 0);
  write("a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(limit("0::/a/b\n"), 0);
  write("a/cpu.max", "350000 100000\n");
  EXPECT_EQ(limit("0::/a/b\n"), 3);
  write("cpu.max", "50000 100000\n");
  EXPECT_EQ(limit("0::/a/b\n"), 1);
}

TEST_F(CgroupTest, VersionOneReadsTheCpuController) {
  write("cpu/docker/cpu.cfs_quota_us", "-1\n");
  write("cpu/docker/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limit("5:cpuset:/x\n4:cpu,cpuacct:/docker\n"), 0);
  write("cpu/docker/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(limit("5:cpuset:/x\n4:cpu,cpuacct:/docker\n"), 2);
  EXPECT_EQ(limit("5:cpuset:/docker\n"), 0);
  EXPECT_EQ(limit("nonsense"), 0);
}

}  // namespace
}  // namespace mantou
